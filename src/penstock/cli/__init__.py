"""The `penstock` command: one module for each noun, imported when its command runs."""
