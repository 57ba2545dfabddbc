"""`penstock consumers` and `penstock dlq`."""
