"""Authorized operations as Kafka's bit sets, on a broker that allows every client everything.

Each bit is the number of an ACL operation. There are no access rules yet, so every bit is set, as
Kafka answers without an authorizer.
"""

from typing import Final

_CREATE: Final = 5
_ALTER: Final = 7
_DESCRIBE: Final = 8
_CLUSTER_ACTION: Final = 9
_DESCRIBE_CONFIGS: Final = 10
_ALTER_CONFIGS: Final = 11
_IDEMPOTENT_WRITE: Final = 12
_READ: Final = 3
_WRITE: Final = 4
_DELETE: Final = 6


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


NOT_ASKED: Final = -2147483648
"""Stands for a set that the client did not request."""
TOPIC_OPERATIONS: Final = _bits(
    _READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS
)
GROUP_OPERATIONS: Final = _bits(_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
CLUSTER_OPERATIONS: Final = _bits(
    _CREATE,
    _ALTER,
    _DESCRIBE,
    _CLUSTER_ACTION,
    _DESCRIBE_CONFIGS,
    _ALTER_CONFIGS,
    _IDEMPOTENT_WRITE,
)
