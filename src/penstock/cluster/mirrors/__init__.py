"""Mirrors: topics that a pipe writes instead of clients."""
