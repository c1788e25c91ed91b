"""The demo: one story in six steps, told while it happens, with one page at the end.

traffic.py    a gateway behind bad links, four kinds of senders, and one kill -9
story.py      the steps in their order, with one Spark session, and what must be true at the end
cover.py      the page that leads to the others
"""
