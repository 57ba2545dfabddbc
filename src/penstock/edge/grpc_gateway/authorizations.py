"""The metadata `authorization` of a call: Basic and Bearer. Pure. No message repeats a secret."""

import base64
import binascii
from typing import Final

from penstock.edge.grpc_gateway.gateway_statuses import UNAUTHENTICATED, GatewayRefusalError
from penstock.protocol.push.payloads import Credentials

FORMS: Final = (
    "send the metadata authorization with 'Basic base64(user:password)' or 'Bearer token'"
)


def credentials_in(authorization: str) -> Credentials:
    """Return the credentials; raise `GatewayRefusalError`."""
    scheme, _, rest = authorization.strip().partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer" and rest:
        return Credentials(token=rest)
    if scheme.lower() == "basic":
        try:
            text = base64.b64decode(rest, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, ValueError):
            text = ""
        user, separator, password = text.partition(":")
        if separator and user:
            return Credentials(user=user, password=password)
    raise GatewayRefusalError(UNAUTHENTICATED, f"the authorization cannot be read; {FORMS}")
