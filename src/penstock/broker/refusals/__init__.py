"""Batches that were refused: their counts, and the sequences of their producers."""
