"""`penstock config`."""
