"""TLS and SASL of outgoing connections: options, certificates, logins."""
