"""Pictures and pages from lake tables: one self-contained HTML file that opens offline.

`page.py` makes pages and what stands on them; `capture.py` makes the report of analysed captures out of them, `lab.py`
that of a sweep.
"""
