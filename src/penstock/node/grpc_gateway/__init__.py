"""The gRPC gateway on one broker: identities, TLS files, and the broker behind its ports."""
