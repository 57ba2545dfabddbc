"""The suites of others, run against Penstock: see README.md."""
