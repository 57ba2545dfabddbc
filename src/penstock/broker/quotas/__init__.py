"""Client quotas: whose bound counts, what was used of it, and how long to wait."""
