"""`penstock edge`: look at a tree of brokers."""
