"""One partition on disk: segments, indexes, producers, recovery, and reading."""
