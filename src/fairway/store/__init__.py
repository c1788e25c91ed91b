"""What several packages need of disks and stores: durable files, locks, locations, the lake's layout, Delta tables.

crashpoints.py  named points at which a test has a process die, or its disk filled
files.py        files that are whole or not there, also after a power cut, and locks
objects.py      clients of an S3 store
locations.py       a folder, or a prefix in an object store
lakes.py        where things lie in a lake
delta.py        Delta tables without Spark: open, commit, positions, repair
parquet.py      tables in Arrow's types, Parquet files batch by batch
analyses.py     the tables of captures, each at the newest run that all of them hold
tending.py      compaction, vacuum and checkpoints of a Delta table
"""
