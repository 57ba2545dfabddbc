"""The ports of share groups and the table of share sessions; requests are in `broker.shares`."""
