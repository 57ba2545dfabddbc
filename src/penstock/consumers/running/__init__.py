"""Runs consumers on an event loop: calls of handlers, timers, commits, stop."""
