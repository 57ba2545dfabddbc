"""`penstock refresh`: snapshots of topics."""
