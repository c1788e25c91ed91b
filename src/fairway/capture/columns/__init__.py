"""Captures by columns: large files from any byte on, without a loop over frames. Everything here loads numpy.

records.py     records as columns, and the steps of a walk
chains.py      the search for a record's boundary from any byte
pcap.py        a walk over a pcap file
pcapng.py      a walk over a pcapng file
ranges.py      one file in ranges, and the proof that together they are the whole
datagrams.py   frames to the UDP datagrams inside
"""
