"""How handlers of share groups ask coordinators and share-partitions."""
