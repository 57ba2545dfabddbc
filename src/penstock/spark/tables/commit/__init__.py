"""Decisions about commits: the part of a micro-batch that a table needs, and its note (pure)."""
