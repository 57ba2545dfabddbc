"""`penstock cluster` and `penstock balance`: the state of a cluster and of its replicas."""
