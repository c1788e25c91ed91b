"""Senders that remember everything, services that are killed, and a judge who compares the two.

fleet.py       devices of all four protocols that send readings and note each outcome
services.py    a gateway and a stream as processes: started, killed, started again on the same ports
judgement.py   the ledger beside the table: acknowledged once, unknown at most once, nothing else, bodies exact
"""
