"""Captures on Spark: from any byte of a pcap to rows of `RECORDS`, and from those to the protocol of each flow.

files.py        which files, their identity, their bytes
parts.py        what one task reads; large files cut into parts that are verified
rows.py         records to Arrow columns
merged.py       records that may hold several datagrams
source.py       `spark.read.format("fairway.capture")`, with datagrams decoded by their ports on request
readings.py     records read as each of the four protocols
recognition.py  which protocol a flow speaks, with the evidence
"""
