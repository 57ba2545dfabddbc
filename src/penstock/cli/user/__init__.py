"""`penstock user`."""
