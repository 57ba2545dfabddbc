"""The share coordinator: durable delivery state of share groups over `__share_group_state`."""
