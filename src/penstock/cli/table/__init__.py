"""`penstock table`."""
