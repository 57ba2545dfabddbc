"""The roles `viewer`, `operator` and `admin`: ready sets of access rules for one principal (pure).

A role is a short way to create rules, and nothing else: the rules are ordinary ones, that are
listed and deleted one by one, and a DENY wins over them.

- **viewer** sees the state of everything, and neither records nor secrets: topics, groups with
  their lag, transactions, settings, quotas, rules and the names of users. It has DESCRIBE and
  DESCRIBE_CONFIGS, and not READ: READ on a topic is its records, and READ on a group joins it.
- **operator** also runs the cluster day by day: creates, changes and deletes topics, deletes old
  records, changes settings and quotas, removes members of groups and deletes groups. Two
  permissions are left out on purpose. READ and WRITE on topics, because an operator need not know
  the data; resetting the offsets of a group therefore needs a rule with READ for its topics.
  ALTER on the cluster, because CreateAcls and AlterUserScramCredentials ask for it: an operator
  with it could become an admin. Elections and reassignments ask for it too, so they need an admin.
- **admin** has ALL on every resource. It differs from a super user, which is a setting of the
  brokers: an admin's rules are deleted by the API, and a DENY takes them back.
"""

from enum import Enum
from typing import Final

from penstock.security.acls.values import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)


class Role(Enum):
    """A set of rules by name."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


_Grants = dict[ResourceType, tuple[Operation, ...]]

_VIEWER: Final[_Grants] = {
    ResourceType.TOPIC: (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    ResourceType.GROUP: (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    ResourceType.CLUSTER: (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE,),
}
_OPERATOR: Final[_Grants] = {
    ResourceType.TOPIC: (
        *_VIEWER[ResourceType.TOPIC],
        Operation.CREATE,
        Operation.ALTER,
        Operation.DELETE,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        *_VIEWER[ResourceType.GROUP],
        Operation.READ,
        Operation.DELETE,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        *_VIEWER[ResourceType.CLUSTER],
        Operation.CREATE,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.TRANSACTIONAL_ID: _VIEWER[ResourceType.TRANSACTIONAL_ID],
}
_ADMIN: Final[_Grants] = {
    resource_type: (Operation.ALL,)
    for resource_type in ResourceType
    if resource_type > ResourceType.ANY
}
_GRANTS: Final = {Role.VIEWER: _VIEWER, Role.OPERATOR: _OPERATOR, Role.ADMIN: _ADMIN}


def role_rules(role: Role, principal: str, host: str = WILDCARD) -> tuple[AclBinding, ...]:
    """Return the rules of a role for one principal, such as `User:alice`."""
    return tuple(
        AclBinding(
            resource_type,
            CLUSTER_NAME if resource_type == ResourceType.CLUSTER else WILDCARD,
            PatternType.LITERAL,
            principal,
            host,
            operation,
            Permission.ALLOW,
        )
        for resource_type, operations in _GRANTS[role].items()
        for operation in operations
    )
