"""Compaction: decisions about records, and one pass over a log."""
