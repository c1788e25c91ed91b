"""Peers that follow the standard and behave differently from our own implementation, in virtual time."""
