"""Captures on Spark beside tshark and dpkt: one file, this machine, this run.

run.py      the run, its tables and goals, tshark and dpkt
made.py     a capture of datagrams of the four protocols
worker.py   Fairway on Spark, in a process of its own so that a cold start is one
"""
