"""Fairway carries messages over UDP, reliably, from the edge to the lake.

Importing this loads no more than a version: rooms are imported by whoever uses them.
"""

__version__ = "0.1.0"
