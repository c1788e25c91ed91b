"""From recognised datagrams to what happened: packets, sessions, transfers, violations and timeline.

    calls.py         which answer a call got, so that a SYN or a connect belongs to the session that it opened
    layouts.py       which of its two layouts an mrp datagram has
    numbers.py       counters that wrap, widened
    packets.py       every record with its session, direction, message, and whether it is a retransmission
    facts.py         what a record says about earlier ones: what it acknowledges, and which numbers are left out
    links.py         which packet a packet repeats, and which it acknowledges
    transfers.py     one row per message
    sessions.py      one row per conversation
    timeline.py      one row per second of a conversation
    sums.py          what conversations and seconds add up; losses and round trips
    episodes.py      one flow at all points, cut at silences: what is computed as a whole
    enrich.py        records, sorted by flow and time, to rows of packets
    survey.py        which files are new
    touched.py       which episodes new files touch
    state.py         what the tables hold, and the commits of a run
    job.py           captures in, tables out: the work of `fairway analyze`
    failures.py      what Spark says of a failure, in a sentence
    follow.py        a folder of rotated captures, each file once

The tables are a function of the set of captures and of the port map.
"""
