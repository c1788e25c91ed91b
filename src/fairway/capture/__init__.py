"""Readers and writers of pcap and pcapng, over bytes that the caller brings and takes away.

An endpoint's or a simulated run's trace is a pcapng file: no format of our own, and Wireshark opens it. Times are
integer nanoseconds. Nothing here opens a file: readers take bytes, writers a `write` function.

    frames.py      link types, numbers in the headers around a datagram, limits, interfaces
    pcap.py        pcap, micro- and nanoseconds, both byte orders
    pcapng.py      pcapng: sections, interfaces, packets; the trace of a run is one named point per endpoint
    packets.py     a UDP datagram to a raw IP packet
    columns/       readers: from any byte on, by columns with numpy; the datagrams inside the frames
"""
