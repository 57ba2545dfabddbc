"""Settings of topics, groups and brokers: names, types, defaults, bounds (pure)."""
