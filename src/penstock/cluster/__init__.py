"""Control plane: the metadata image, the decisions on it, and the stores that keep it."""
