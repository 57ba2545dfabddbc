"""The registry of sites: roles, parents, and the topology that each node follows."""
