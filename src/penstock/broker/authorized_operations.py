"""Authorized operations as Kafka's bit sets: the operations that the client of a request may do.

Each bit is the number of an ACL operation. The constants are the operations that Kafka reports for
a type of resource; `RequestContext.operations` removes the denied ones. Without an authorizer every
bit is set, as in Kafka.
"""

from collections.abc import Iterable
from typing import Final

from penstock.broker.context import RequestContext
from penstock.security.acls.values import CLUSTER_NAME, Operation, ResourceType


def _bits(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)


NOT_ASKED: Final = -2147483648
"""Stands for a set that the client did not request."""
TOPIC_OPERATIONS: Final = _bits(
    (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    )
)
GROUP_OPERATIONS: Final = _bits(
    (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    )
)
CLUSTER_OPERATIONS: Final = _bits(
    (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    )
)


def topic_operations(name: str, context: RequestContext) -> int:
    """Return the operations on a topic that the client may do."""
    return context.operations(ResourceType.TOPIC, name, TOPIC_OPERATIONS)


def cluster_operations(context: RequestContext) -> int:
    """Return the operations on the cluster that the client may do; none without DESCRIBE."""
    if not context.allows_cluster(Operation.DESCRIBE):
        return 0
    return context.operations(ResourceType.CLUSTER, CLUSTER_NAME, CLUSTER_OPERATIONS)
