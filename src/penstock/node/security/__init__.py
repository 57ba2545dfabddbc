"""Identity and access of a node: files, directories and providers behind the pure decisions."""
