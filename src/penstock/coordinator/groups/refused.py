"""`RefusedError`: why a coordinator refuses a request.

Raised by a handler before anything is decided, caught where the answer is built. It has the code
and the message of the answer. It is NOT an error of ours: nothing is logged.
"""

from penstock.core.errors import PenstockError
from penstock.protocol.error_codes import ErrorCode


class RefusedError(PenstockError):
    """A request that is answered with an error."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message
