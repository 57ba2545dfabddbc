"""Client quotas: which bound counts for a client, how much is used, and how long to wait."""
