"""The state of a group shard: live and stored groups, and committed offsets."""
