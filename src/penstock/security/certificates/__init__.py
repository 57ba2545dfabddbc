"""Names in X.509 certificates, and the principals that they stand for (pure)."""
