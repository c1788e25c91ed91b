"""Readers and writers of pcap and pcapng, over bytes that the caller brings and takes away.

An endpoint's or a simulated run's trace is a pcapng file: no format of our own, and Wireshark opens it. Times are
integer nanoseconds. Nothing here opens a file: readers take bytes or a `read` function, writers a `write` function.

    frames.py      what a capture holds
    pcap.py        pcap, micro- and nanoseconds, both byte orders
    pcapng.py      pcapng: sections, interfaces, packets, comments
    reading.py     either of the two
    packets.py     a UDP datagram to a raw IP packet
    datagrams.py   a captured frame to the UDP datagram inside
    columns/       all of this for large files: from any byte on, by columns with numpy
    trace.py       the trace of a run: one named point of capture per endpoint
"""
