"""Senders that remember everything, services that are killed, and a judge who compares the two.

fleet.py       devices of all four protocols that send readings and note each outcome
senders.py     fleets in a process of their own: patient, hasty and bulky devices
links.py       a relay before each protocol that loses, doubles and reorders
services.py    a gateway and a stream as processes: started, killed, started again on the same ports
plan.py        what is done to whom, drawn from a seed
lanes.py       blows at the gateway beside blows at the stream
disk.py        a disk that can be filled
readers.py     delta-rs, DuckDB, Polars and Spark, each counting what it sees
watching.py    readers that look at the table meanwhile
judgement.py   the ledger beside the table: acknowledged once, unknown at most once, nothing else, bodies exact
run.py         a whole run
powercut/      what was written, rebuilt as a power cut would have left it
"""
