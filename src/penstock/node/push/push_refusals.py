"""`refused`: the error that refuses a request of a push client with a code of Kafka."""

from penstock.edge.push.ports import PushRefusedError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.push.payloads import Refusal


def refused(code: ErrorCode, error: str) -> PushRefusedError:
    """Return the error that refuses a request."""
    return PushRefusedError(Refusal(error=error, code=code.name, retriable=code.retriable))
