"""The `penstock` command: one module for each noun, loaded when it is asked for."""
