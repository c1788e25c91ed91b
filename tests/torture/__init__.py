"""Senders that remember everything, services that are killed, and a judge who compares the two.

Fleet, links, services and judge are those of the demo (`fairway.demo`).

senders.py     fleets in a process of their own: patient, hasty and bulky devices
plan.py        what is done to whom, drawn from a seed
lanes.py       faults of the gateway beside faults of the stream
disk.py        a disk that can be filled
readers.py     delta-rs, DuckDB, Polars and Spark, each counting what it sees
watching.py    readers that read the table meanwhile
run.py         a whole run
powercut/      what was written, rebuilt as a power cut would have left it
"""
