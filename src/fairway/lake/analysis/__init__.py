"""From recognised datagrams to what happened: packets, sessions, transfers, violations and timeline.

    calls.py         which answer a call got, so that a SYN or a connect belongs to the session that it opened
    layouts.py       which of its two layouts an mrp datagram has
    numbers.py       counters that wrap, widened
    packets.py       every record with its session, direction, message, and whether it is a retransmission
    facts.py         what a record says about earlier ones: what it acknowledges, and which numbers are left out
    transfers.py     one row per message
    sessions.py      one row per conversation
    timeline.py      one row per second of a conversation
    sums.py          what conversations and seconds add up; losses and round trips
    scale.py         how a run is laid out: few records in one task, many spread
    failures.py      what Spark says of a failure, in a sentence
    publishing.py    folders of tables exchanged so that a crash is completed by the next run
    job.py           captures in, tables out: the work of `fairway analyze`
    follow.py        a folder of rotated captures, each file once

`packets` is computed in arrays, the other tables on Spark from the stored packets, by functions DataFrame -> DataFrame
that are lazy and deterministic: tables are a function of the set of captures and of the port map. Work is cut by
`bucket`, a number made from the flow, so that what one new file touches can be replaced alone.
"""
