"""From the segments of gateways to tables, exactly once: the stream, its compaction, and the count that proves it."""
