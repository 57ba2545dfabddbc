"""Decisions about commits: what a micro-batch adds to a table, and its note (pure)."""
