"""The demo: one story in six steps, told while it happens, with one page at the end.

traffic.py    a gateway behind bad links, four kinds of senders, and one kill -9
story.py      the steps in their order, with one Spark session, and what must be true at the end
cover.py      the page that leads to the others
keys.py       the identities of gateway and devices: all of it runs over DTLS
fleet.py      devices of all four protocols that send readings and note each outcome
relay.py      a UDP relay that loses, duplicates and reorders; links.py puts one before each protocol
services.py   a gateway and a stream as processes: started, killed, started again on the same ports
judgement.py  the ledger beside the table: acknowledged once, unknown at most once, nothing else, bodies exact
processes.py  child processes that end with their parent's block
"""
