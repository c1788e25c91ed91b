"""`fairway bench transport`: Fairway beside raw UDP, TCP, QUIC, ENet and KCP, in one run on one machine.

Sender and receiver are two processes on a core each. A *cell* is one peer under one load in one environment; a round
runs every cell once, peers next to each other, and every other round backwards, so that a busy minute hits all alike.
Every received byte is compared with what was sent, in the same way for all: a difference fails the cell.
"""
