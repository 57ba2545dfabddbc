"""Operation of a cluster over Kafka's protocol: its state, and plans for its replicas."""
