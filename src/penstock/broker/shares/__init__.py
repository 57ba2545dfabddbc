"""Share groups (KIP-932): the answers to requests about records and about delivery state."""
