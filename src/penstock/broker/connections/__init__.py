"""Connections of clients: sockets, requests in order, limits, and their ends."""
