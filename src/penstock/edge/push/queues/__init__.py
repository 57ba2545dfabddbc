"""Queue subscriptions: one record to one subscriber, through the share groups of the broker."""
