"""Share groups on this node: the share-partitions that it leads."""
