"""`penstock acl`."""
