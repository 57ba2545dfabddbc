"""Groups of a cluster: members, lag, and offset resets."""
