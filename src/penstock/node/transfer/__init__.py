"""Import of a broker's metadata into a cluster, and export back into its data directory."""
