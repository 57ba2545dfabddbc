"""Records: read, written, and deleted."""
