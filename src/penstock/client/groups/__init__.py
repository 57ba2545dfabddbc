"""Groups of a cluster: members, lag, and offsets that are reset."""
