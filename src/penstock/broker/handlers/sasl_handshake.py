"""SaslHandshake on a connection that needs no login, or has one: ILLEGAL_SASL_STATE, as in Kafka.

A login and a re-authentication never get here: `broker.connections.client_login` answers them.
"""

from penstock.broker.context import RequestContext
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:  # noqa: ARG001
    """The listener of this connection expects no login now."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
