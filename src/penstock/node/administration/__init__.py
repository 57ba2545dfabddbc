"""Topics, groups, quotas and settings: changed in the metadata, applied to this broker."""
