"""Arrow columns to record batches."""
