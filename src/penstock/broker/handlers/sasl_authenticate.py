"""SaslAuthenticate outside of a login: ILLEGAL_SASL_STATE, as in Kafka.

A login and a re-authentication never get here: `broker.connections.client_login` answers them.
"""

from penstock.broker.context import RequestContext
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

MESSAGE = "SaslAuthenticate request received after successful authentication"
"""Kafka's words."""


def handle(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:  # noqa: ARG001
    """The connection is not within a login."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=MESSAGE, auth_bytes=b""
    )
