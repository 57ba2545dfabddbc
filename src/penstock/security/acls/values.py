"""The values of access rules, with Kafka's names and numbers on the wire (pure).

A rule (`AclBinding`) allows or denies one principal one operation, from one host, on the resources
that one pattern matches. A rule that is in force has concrete values; `UNKNOWN`, `ANY` and `MATCH`
occur in filters only. This module decides nothing: `security.acls.authorizer` does.
"""

from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"
"""As a resource name of a LITERAL pattern, or as a host: each one."""
WILDCARD_PRINCIPAL: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of the type CLUSTER."""


class ResourceType(IntEnum):
    """The type of a resource that rules protect."""

    __hash__ = int.__hash__  # of an enumeration it is a call of Python code

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name in a rule is compared with the name of a resource."""

    __hash__ = int.__hash__  # of an enumeration it is a call of Python code

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """A kind of access."""

    __hash__ = int.__hash__  # of an enumeration it is a call of Python code

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """The effect of a rule."""

    __hash__ = int.__hash__  # of an enumeration it is a call of Python code

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclBinding(NamedTuple):
    """One rule."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    """Such as `User:alice`, or `User:*` for each one."""
    host: str
    """An address as text, or `*`."""
    operation: Operation
    permission: Permission
