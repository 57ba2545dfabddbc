"""Stateful functions: a stream with a watermark, and its results in the table exactly once."""
