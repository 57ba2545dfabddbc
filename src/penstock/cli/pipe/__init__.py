"""`penstock pipe` and `penstock mirror`: copies of another cluster's topics."""
