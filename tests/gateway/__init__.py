"""Tests of the gateway: real sockets, real SQLite, processes that are really killed."""
