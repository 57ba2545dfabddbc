"""The cells of the matrix: sets of rules, each for a user of its own.

A cell is one of:

- `none`: no rule;
- `full`: ALLOW ALL on topics, groups, transactional ids and the cluster;
- `only TOPIC READ`: this one operation is allowed;
- `without TOPIC READ`: `full`, and a DENY of this one operation.

Except for `none`, there is a cell for each pattern (LITERAL, PREFIXED, and LITERAL with the name
`*`) and for each host: the client's address, and an address that no client has. In `without` the
host is the DENY's. Kafka accepts one name only for the resource type CLUSTER, so the columns of
CLUSTER have no cell with `*`.

A user has the rules of its own cell only, so that rules never change during a run. This module
does NOT know which request needs which permission.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.security.acls.values import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.principal import user
from tests.access_matrix.names import GROUP, GROUPS, TOPIC, TOPICS, TRANSACTION, TRANSACTIONS

HOST: Final = "127.0.0.1"
"""The address of every client."""
WRONG_HOST: Final = "192.0.2.1"

NONE: Final = "none"
FULL: Final = "full"
ONLY: Final = "only"
WITHOUT: Final = "without"

LITERAL: Final = "literal"
PREFIXED: Final = "prefixed"
ANY_NAME: Final = "any-name"
PATTERNS: Final = (LITERAL, PREFIXED, ANY_NAME)

RIGHT: Final = "right-host"
WRONG: Final = "wrong-host"
HOSTS: Final = {RIGHT: HOST, WRONG: WRONG_HOST}

NAMES: Final = {
    ResourceType.TOPIC: TOPICS,
    ResourceType.GROUP: GROUPS,
    ResourceType.TRANSACTIONAL_ID: TRANSACTIONS,
    ResourceType.CLUSTER: (CLUSTER_NAME,),
}
PREFIXES: Final = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: GROUP,
    ResourceType.TRANSACTIONAL_ID: TRANSACTION,
    ResourceType.CLUSTER: CLUSTER_NAME,
}
OPERATIONS: Final = tuple(one for one in Operation if one >= Operation.ALL)
COLUMNS: Final = tuple((resource, operation) for resource in NAMES for operation in OPERATIONS)
"""Kafka accepts rules with each operation for each resource type."""


class Block(NamedTuple):
    """Cells that differ in their column only; `none` and `full` have one cell each."""

    kind: str
    pattern: str = ""
    host: str = ""

    @property
    def name(self) -> str:
        """Its key in the recorded file."""
        return " ".join(filter(None, self))


class Cell(NamedTuple):
    """One set of rules."""

    block: Block
    resource: ResourceType | None = None
    operation: Operation | None = None

    @property
    def user(self) -> str:
        """The user that has these rules, and no others."""
        kind, pattern, host = self.block
        column = () if self.resource is None else (self.resource.name, _name(self.operation))
        return ".".join(filter(None, (kind, *column, pattern, host))).lower()

    def rules(self) -> list[AclBinding]:
        """Return the rules of the cell's user."""
        kind, pattern, host = self.block
        if kind == NONE:
            return []
        if kind == FULL:
            return list(self._full(pattern, HOSTS[host]))
        assert self.resource is not None
        assert self.operation is not None
        if kind == ONLY:
            allow = Permission.ALLOW
            return list(self._rules(self.resource, self.operation, pattern, HOSTS[host], allow))
        deny = self._rules(self.resource, self.operation, pattern, HOSTS[host], Permission.DENY)
        return [*self._full(pattern, HOST), *deny]

    def _full(self, pattern: str, host: str) -> Iterator[AclBinding]:
        for resource in NAMES:
            yield from self._rules(resource, Operation.ALL, pattern, host, Permission.ALLOW)

    def _rules(
        self,
        resource: ResourceType,
        operation: Operation,
        pattern: str,
        host: str,
        permission: Permission,
    ) -> Iterator[AclBinding]:
        for name, pattern_type in _resources(resource, pattern):
            yield AclBinding(
                resource, name, pattern_type, str(user(self.user)), host, operation, permission
            )


def _name(operation: Operation | None) -> str:
    return "" if operation is None else operation.name


def _resources(resource: ResourceType, pattern: str) -> list[tuple[str, PatternType]]:
    if pattern == PREFIXED:
        return [(PREFIXES[resource], PatternType.PREFIXED)]
    if pattern == ANY_NAME and resource != ResourceType.CLUSTER:
        return [(WILDCARD, PatternType.LITERAL)]
    return [(name, PatternType.LITERAL) for name in NAMES[resource]]


def blocks() -> list[Block]:
    """Return all blocks, in the order of the recorded file."""
    places = [(pattern, host) for pattern in PATTERNS for host in HOSTS]
    return [
        Block(NONE),
        *(Block(kind, *place) for kind in (FULL, ONLY, WITHOUT) for place in places),
    ]


def cells_of(block: Block) -> list[Cell | None]:
    """Return the cells of a block by column; None for a column without a cell."""
    if block.kind in {NONE, FULL}:
        return [Cell(block)]
    return [
        None
        if block.pattern == ANY_NAME and resource == ResourceType.CLUSTER
        else Cell(block, resource, operation)
        for resource, operation in COLUMNS
    ]


def all_cells() -> list[Cell]:
    """Return all cells, in the order of the recorded file."""
    return [cell for block in blocks() for cell in cells_of(block) if cell is not None]
