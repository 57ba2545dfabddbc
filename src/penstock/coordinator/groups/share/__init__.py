"""Share groups (KIP-932): members, epochs, assignments, and partitions with delivery state."""
