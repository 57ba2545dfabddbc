"""Connections between the brokers of a cluster: the listener for them, and calls to them."""
