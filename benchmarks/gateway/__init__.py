"""`fairway bench gateway`: durable, acknowledged messages a second of the gateway beside Redis streams and RabbitMQ.

systems.py   who is measured: the server, its client, and what its acknowledgement promises
servers.py   the servers as processes with their data in one temporary folder, and how many messages each holds
clients.py   the sending side, a process of its own, with a class for each client library
rounds.py    the run, its tables and goals; what was acknowledged must be there
soak.py      an hour at a constant rate from many peers, with a stream running (`make soak-gateway`)
"""
