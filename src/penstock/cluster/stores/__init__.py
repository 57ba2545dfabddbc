"""The port to the metadata store, and its implementation in SQLite."""
