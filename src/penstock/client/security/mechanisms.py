"""Creates the SASL exchange of a connection from its options: draws nonces, requests tokens."""

import secrets
from typing import Final

from penstock.client.security.options import Security
from penstock.security.sasl_client import (
    OAUTHBEARER,
    PLAIN,
    BearerClient,
    PlainClient,
    SaslClient,
    ScramClient,
)

NONCE_BYTES: Final = 24


def new_exchange(security: Security) -> SaslClient:
    """Return a new exchange; OAUTHBEARER may request a token, so a call can take seconds."""
    sasl = security.sasl
    assert sasl is not None
    if sasl.mechanism == OAUTHBEARER:
        from penstock.client.security.bearer import TOKENS  # HTTP; keeps the start fast

        assert sasl.tokens is not None
        token = TOKENS.token(sasl.tokens, security.tls)
        return BearerClient(token, sasl.tokens.extensions)
    assert sasl.password is not None
    if sasl.mechanism == PLAIN:
        return PlainClient(sasl.username, sasl.password)
    nonce = secrets.token_urlsafe(NONCE_BYTES)
    return ScramClient(sasl.mechanism, sasl.username, sasl.password, nonce)


def forget_credential(security: Security) -> None:
    """Request a new token at the next login, after a broker refused this one."""
    if security.sasl is not None and security.sasl.tokens is not None:
        from penstock.client.security.bearer import TOKENS

        TOKENS.forget(security.sasl.tokens, security.tls)
