"""Reading, writing and deleting records."""
