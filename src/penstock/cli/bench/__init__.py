"""`penstock bench`."""
