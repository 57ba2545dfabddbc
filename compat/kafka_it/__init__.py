"""One foreign suite: see run.py."""
