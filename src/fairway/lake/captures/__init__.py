"""Captures on Spark: from any byte of a pcap to rows of `RECORDS`, and from those to the protocol of each flow.

files.py        which files, their identity, their bytes
parts.py        what one task reads
planning.py     large files cut into parts that are verified
jobs.py         one task for each item of a list
rows.py         records to Arrow columns
source.py       `spark.read.format("fairway.capture")`
mapped.py       datagrams decoded by their ports, in the source
readings.py     records read as each of the four protocols
recognition.py  which protocol a flow speaks, with the evidence
"""
