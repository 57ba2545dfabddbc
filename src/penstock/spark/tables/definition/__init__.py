"""The definition of a pipeline: from a TOML file to one frozen value, or to clear errors."""
