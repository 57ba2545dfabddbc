"""Pipes over HTTP: the routes of a parent, and the transport of a child."""
