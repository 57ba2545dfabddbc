"""Refresh: snapshots of a topic at an offset vector: their format, their files, their records."""
