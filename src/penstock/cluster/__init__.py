"""Control plane: the metadata image, the decisions on it, and its stores."""
