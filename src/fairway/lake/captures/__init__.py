"""Captures on Spark: from any byte of a pcap to rows of `DATAGRAMS`, and from those to the protocol of each flow.

files.py        which files, their identity, their bytes
parts.py        what one task reads
rows.py         records to Arrow columns
filters.py      conditions on rows, evaluated before columns are built
jobs.py         one task for each item of a list
planning.py     large files cut into parts that are verified
source.py       `spark.read.format("fairway.capture")`
ingest.py       captures into the lake, each once
recognition.py  which protocol a flow speaks, with the evidence
summary.py      a capture at a glance
"""
