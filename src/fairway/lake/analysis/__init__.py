"""From recognised datagrams to what happened: packets, sessions, transfers, violations and timeline.

    calls.py         which answer a call got, so that a SYN or a connect belongs to the session that it opened
    layouts.py       which of its two layouts an mrp datagram has
    numbers.py       counters that wrap, widened
    packets.py       every record with its session, direction, message, and whether it is a copy
    exchanges.py     what was sent and what came back for it; round trips
    transfers.py     one row per message
    sessions.py      one row per conversation
    timeline.py      one row per second of a conversation
    derived.py       all of these from `packets`
    publishing.py    folders of tables exchanged so that a crash is completed by the next run
    job.py           captures in, tables out: the work of `fairway analyze`
    follow.py        a folder of rotated captures, each file once

All functions from frames to frames are lazy and deterministic: tables are a function of the set of captures and of
the port map. Work is cut by `bucket`, a number made from the flow, so that what one new file touches can be
replaced alone.
"""
