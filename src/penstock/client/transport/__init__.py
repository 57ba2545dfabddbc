"""Connections to brokers, calls as values, and versions."""
