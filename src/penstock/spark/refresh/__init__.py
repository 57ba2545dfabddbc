"""Spark jobs that build snapshots of topics."""
