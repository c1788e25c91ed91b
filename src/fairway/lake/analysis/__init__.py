"""From captured records to what happened: packets, sessions, transfers, violations and timeline.

    job.py               captures in, tables out: the work of `fairway analyze`
    changes.py           which captures are new, and which episodes they touch
    enrich.py            records, sorted by flow and time, to rows of packets
    episodes.py          one flow at all points, cut at silences: what is computed as a whole
    decoded.py           what each record says, read as the protocol of its flow
    conversations.py     which records are one session, and who called
    headers.py           numbers without their wrapping, messages, and which numbers are left out
    acknowledgements.py  what repeats what, and what answers what
    packets.py           every record with all of that
    giants.py            the same for an episode that is too large for memory
    transfers.py         one row per message
    sessions.py          one row per conversation, and per second of one; losses and round trips
    state.py             what the tables hold, and the commits of a run
    follow.py            a folder of rotated captures, each file once
    summary.py           what the tables say in a few lines

The tables are a function of the set of captures and of the port map.
"""
