"""Every request of the matrix: one or more for each API that the broker serves.

Each request is harmless: it succeeds or fails in the same way each time it is sent, in any order
with the others. A new API needs a request here: `test_matrix` fails without one.
"""

from typing import Final

from penstock.protocol.api_keys import ApiKey
from tests.access_matrix import (
    administration_requests,
    group_requests,
    record_requests,
    share_requests,
    topic_requests,
    transaction_requests,
)
from tests.access_matrix.names import Case

_MODULES: Final = (
    record_requests,
    topic_requests,
    group_requests,
    share_requests,
    transaction_requests,
    administration_requests,
)
CASES: Final[tuple[Case, ...]] = tuple(
    sorted(
        (case for module in _MODULES for case in module.CASES.cases),
        # They are sent together: no other request may find a topic just deleted.
        key=lambda case: case.api == ApiKey.DELETE_TOPICS,
    )
)
LOGIN_APIS: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""Not in the matrix: they are answered before the client has an identity."""
