"""The gateway: endpoints in front, a journal behind, segments for the lake.

acknowledged = on disk, once. What arrives is gathered for a few milliseconds, written to SQLite together with the
protocol state that recognises its duplicates, and acknowledged after the commit. A sealer turns committed messages into
Parquet segments. A crash at any instant repeats a step with the same result.
"""
