"""Pictures and pages from lake tables: one self-contained HTML file that opens offline.

`page.py` is the frame of every page, `blocks.py` and `charts.py` what stands in it; `capture.py` makes the report of
analysed captures out of them.
"""
