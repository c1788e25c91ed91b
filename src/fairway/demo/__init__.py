"""The demo: one story in six steps, told while it happens, with one page at the end.

story.py      the steps in their order, with one Spark session and one kill -9, and the page at the end
keys.py       the identities of gateway and devices: all of it runs over DTLS
fleet.py      devices of all four protocols that send readings and note each outcome; the ledger beside the table
relay.py      a UDP relay that loses, duplicates and reorders, one before each protocol
services.py   a gateway and a stream as processes: started, killed, started again on the same ports
"""
