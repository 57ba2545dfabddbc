"""Parquet files that tasks write, and the facts about the files of a table."""
