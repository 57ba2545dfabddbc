"""`API_RULES`: the permissions that the handler of each API asks for (data).

For each API, the operations by type of resource that its handler may ask for in any request. An API
that needs no permission has an entry without needs; an API without an entry cannot be served
(`broker.dispatch`). So a new handler cannot be added without a decision about its permissions.

The table does NOT say which of them a request needs, in which order they are asked for, nor how the
broker answers without them: that is the code of the handler. Sets of authorized operations, which
some answers have, are not listed either.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from penstock.protocol.api_keys import ApiKey
from penstock.security.acls.values import Operation, ResourceType


class Need(NamedTuple):
    """An operation on resources of one type."""

    resource_type: ResourceType
    operation: Operation


def _topic(*operations: Operation) -> Iterable[Need]:
    return (Need(ResourceType.TOPIC, operation) for operation in operations)


def _group(*operations: Operation) -> Iterable[Need]:
    return (Need(ResourceType.GROUP, operation) for operation in operations)


def _cluster(*operations: Operation) -> Iterable[Need]:
    return (Need(ResourceType.CLUSTER, operation) for operation in operations)


def _transaction(*operations: Operation) -> Iterable[Need]:
    return (Need(ResourceType.TRANSACTIONAL_ID, operation) for operation in operations)


def _needs(*needs: Iterable[Need]) -> frozenset[Need]:
    return frozenset(need for some in needs for need in some)


_READ: Final = Operation.READ
_WRITE: Final = Operation.WRITE
_CREATE: Final = Operation.CREATE
_DELETE: Final = Operation.DELETE
_ALTER: Final = Operation.ALTER
_DESCRIBE: Final = Operation.DESCRIBE
_CLUSTER_ACTION: Final = Operation.CLUSTER_ACTION
_DESCRIBE_CONFIGS: Final = Operation.DESCRIBE_CONFIGS
_ALTER_CONFIGS: Final = Operation.ALTER_CONFIGS

_BEFORE_OTHERS: Final[Mapping[int, frozenset[Need]]] = {
    ApiKey.API_VERSIONS: _needs(),
    ApiKey.SASL_HANDSHAKE: _needs(),
    ApiKey.SASL_AUTHENTICATE: _needs(),
}
"""A client may send these before it has an identity."""

_RECORDS: Final[Mapping[int, frozenset[Need]]] = {
    ApiKey.PRODUCE: _needs(_transaction(_WRITE), _topic(_WRITE)),
    ApiKey.FETCH: _needs(_topic(_READ), _cluster(_CLUSTER_ACTION)),
    ApiKey.LIST_OFFSETS: _needs(_topic(_DESCRIBE)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _needs(_topic(_DESCRIBE), _cluster(_CLUSTER_ACTION)),
    ApiKey.SHARE_FETCH: _needs(_group(_READ), _topic(_READ)),
    ApiKey.SHARE_ACKNOWLEDGE: _needs(_group(_READ), _topic(_READ)),
    ApiKey.DELETE_RECORDS: _needs(_topic(_DELETE)),
    ApiKey.DESCRIBE_PRODUCERS: _needs(_topic(_READ)),
}

_TOPICS: Final[Mapping[int, frozenset[Need]]] = {
    ApiKey.METADATA: _needs(_topic(_DESCRIBE, _CREATE), _cluster(_CREATE, _DESCRIBE)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _needs(_topic(_DESCRIBE)),
    ApiKey.CREATE_TOPICS: _needs(_topic(_CREATE, _DESCRIBE_CONFIGS), _cluster(_CREATE)),
    ApiKey.DELETE_TOPICS: _needs(_topic(_DELETE, _DESCRIBE), _cluster(_DELETE)),
    ApiKey.CREATE_PARTITIONS: _needs(_topic(_ALTER)),
}

_GROUPS: Final[Mapping[int, frozenset[Need]]] = {
    ApiKey.FIND_COORDINATOR: _needs(
        _group(_DESCRIBE), _transaction(_DESCRIBE), _cluster(_CLUSTER_ACTION)
    ),
    ApiKey.JOIN_GROUP: _needs(_group(_READ)),
    ApiKey.SYNC_GROUP: _needs(_group(_READ)),
    ApiKey.HEARTBEAT: _needs(_group(_READ)),
    ApiKey.LEAVE_GROUP: _needs(_group(_READ)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _needs(_group(_READ), _topic(_DESCRIBE)),
    ApiKey.OFFSET_COMMIT: _needs(_group(_READ), _topic(_READ)),
    ApiKey.OFFSET_FETCH: _needs(_group(_DESCRIBE), _topic(_DESCRIBE)),
    ApiKey.OFFSET_DELETE: _needs(_group(_DELETE), _topic(_READ)),
    ApiKey.DESCRIBE_GROUPS: _needs(_group(_DESCRIBE)),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _needs(_group(_DESCRIBE), _topic(_DESCRIBE)),
    ApiKey.STREAMS_GROUP_DESCRIBE: _needs(_group(_DESCRIBE), _topic(_DESCRIBE)),
    ApiKey.SHARE_GROUP_HEARTBEAT: _needs(_group(_READ), _topic(_DESCRIBE)),
    ApiKey.SHARE_GROUP_DESCRIBE: _needs(_group(_DESCRIBE), _topic(_DESCRIBE)),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _needs(_group(_DESCRIBE), _topic(_DESCRIBE)),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _needs(_group(_READ), _topic(_READ)),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _needs(_group(_DELETE), _topic(_READ)),
    ApiKey.LIST_GROUPS: _needs(_cluster(_DESCRIBE), _group(_DESCRIBE)),
    ApiKey.DELETE_GROUPS: _needs(_group(_DELETE)),
}

_TRANSACTIONS: Final[Mapping[int, frozenset[Need]]] = {
    ApiKey.INIT_PRODUCER_ID: _needs(
        _transaction(_WRITE, Operation.TWO_PHASE_COMMIT),
        _cluster(Operation.IDEMPOTENT_WRITE),
        _topic(_WRITE),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: _needs(
        _transaction(_WRITE), _topic(_WRITE), _cluster(_CLUSTER_ACTION)
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: _needs(_transaction(_WRITE), _group(_READ)),
    ApiKey.END_TXN: _needs(_transaction(_WRITE)),
    ApiKey.TXN_OFFSET_COMMIT: _needs(_transaction(_WRITE), _group(_READ), _topic(_READ)),
    ApiKey.WRITE_TXN_MARKERS: _needs(_cluster(_ALTER, _CLUSTER_ACTION)),
    ApiKey.DESCRIBE_TRANSACTIONS: _needs(_transaction(_DESCRIBE), _topic(_DESCRIBE)),
    ApiKey.LIST_TRANSACTIONS: _needs(_transaction(_DESCRIBE)),
}

_SHARE_STATE: Final[Mapping[int, frozenset[Need]]] = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _needs(_cluster(_CLUSTER_ACTION)),
    ApiKey.READ_SHARE_GROUP_STATE: _needs(_cluster(_CLUSTER_ACTION)),
    ApiKey.WRITE_SHARE_GROUP_STATE: _needs(_cluster(_CLUSTER_ACTION)),
    ApiKey.DELETE_SHARE_GROUP_STATE: _needs(_cluster(_CLUSTER_ACTION)),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _needs(_cluster(_CLUSTER_ACTION)),
}

_CLUSTER: Final[Mapping[int, frozenset[Need]]] = {
    ApiKey.DESCRIBE_CLUSTER: _needs(_cluster(_DESCRIBE)),
    ApiKey.DESCRIBE_CONFIGS: _needs(
        _topic(_DESCRIBE_CONFIGS), _group(_DESCRIBE_CONFIGS), _cluster(_DESCRIBE_CONFIGS)
    ),
    ApiKey.ALTER_CONFIGS: _needs(
        _topic(_ALTER_CONFIGS), _group(_ALTER_CONFIGS), _cluster(_ALTER_CONFIGS)
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _needs(
        _topic(_ALTER_CONFIGS), _group(_ALTER_CONFIGS), _cluster(_ALTER_CONFIGS)
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _needs(_cluster(_DESCRIBE_CONFIGS)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _needs(_cluster(_DESCRIBE_CONFIGS)),
    ApiKey.ALTER_CLIENT_QUOTAS: _needs(_cluster(_ALTER_CONFIGS)),
    ApiKey.DESCRIBE_LOG_DIRS: _needs(_cluster(_DESCRIBE)),
    ApiKey.DESCRIBE_QUORUM: _needs(_cluster(_DESCRIBE)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _needs(_cluster(_DESCRIBE)),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _needs(_cluster(_ALTER)),
    ApiKey.ELECT_LEADERS: _needs(_cluster(_ALTER)),
    ApiKey.UPDATE_FEATURES: _needs(_cluster(_ALTER)),
    ApiKey.UNREGISTER_BROKER: _needs(_cluster(_ALTER)),
    ApiKey.DESCRIBE_ACLS: _needs(_cluster(_DESCRIBE)),
    ApiKey.CREATE_ACLS: _needs(_cluster(_ALTER)),
    ApiKey.DELETE_ACLS: _needs(_cluster(_ALTER)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _needs(_cluster(_DESCRIBE)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _needs(_cluster(_ALTER)),
}

API_RULES: Final[Mapping[int, frozenset[Need]]] = MappingProxyType(
    {
        **_BEFORE_OTHERS,
        **_RECORDS,
        **_TOPICS,
        **_GROUPS,
        **_TRANSACTIONS,
        **_SHARE_STATE,
        **_CLUSTER,
    }
)
"""By API key."""
