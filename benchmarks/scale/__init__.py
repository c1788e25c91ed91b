"""What must hold at size: exact bytes and counts over a bad link, crowds of sessions, floods, and long runs.

`python -m benchmarks.scale` runs everything at full size; the tests run the same functions smaller.
"""
