"""Filters of access rules, and the checks of new rules, as in Apache Kafka (pure).

`AclFilter.matches` is Kafka's AclBindingFilter. A field that is None or ANY accepts every value.
The pattern type MATCH accepts the rules that apply to a resource of the given name: its literal
rules, those of `*`, and those of its prefixes.

`creation_problem` and `filter_problem` return Kafka's messages; the error is INVALID_REQUEST.
Numbers on the wire that no value has become UNKNOWN, so a check reports them.
"""

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

CHANGED_RULES_MAX: Final = 10_000
"""Rules that one request may create or delete, as in Kafka."""
TOO_MANY_DELETED: Final = (
    f"Cannot remove more than {CHANGED_RULES_MAX} acls in a single delete operation."
)
"""Kafka's message for a DeleteAcls above the bound; the whole request is INVALID_REQUEST."""


class AclFilter(NamedTuple):
    """A condition for rules."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, rule: AclBinding) -> bool:
        """Whether a rule that can be in force passes the filter."""
        return (
            self.resource_type in (ResourceType.ANY, rule.resource_type)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (Permission.ANY, rule.permission)
            and self._matches_pattern(rule)
        )

    def _matches_pattern(self, rule: AclBinding) -> bool:
        if self.pattern_type == PatternType.MATCH:
            return self.name is None or applies_to(rule, self.name)
        return self.pattern_type in (PatternType.ANY, rule.pattern_type) and self.name in (
            None,
            rule.name,
        )


def applies_to(rule: AclBinding, name: str) -> bool:
    """Whether the pattern of a rule matches the name of a resource."""
    if rule.pattern_type == PatternType.PREFIXED:
        return name.startswith(rule.name)
    return rule.name in (name, WILDCARD)


def read_filter(
    *,
    resource_type: int,
    name: str | None,
    pattern_type: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> AclFilter:
    """Return the filter of a request; a number without a meaning becomes UNKNOWN."""
    return AclFilter(
        _resource_type(resource_type),
        name,
        _pattern_type(pattern_type),
        principal,
        host,
        _operation(operation),
        _permission(permission),
    )


def read_binding(
    *,
    resource_type: int,
    name: str,
    pattern_type: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> AclBinding:
    """Return the rule of a request, to be checked by `creation_problem`."""
    return AclBinding(
        _resource_type(resource_type),
        name,
        _pattern_type(pattern_type),
        principal,
        host,
        _operation(operation),
        _permission(permission),
    )


def creation_problem(rule: AclBinding) -> str | None:
    """Return Kafka's message if a rule cannot be created, or None."""
    if rule.resource_type == ResourceType.CLUSTER and rule.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not rule.name:
        return "Invalid empty resource name"
    if rule.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"Invalid resourceType {rule.resource_type.name}"
    if rule.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {rule.pattern_type.name}"
    if rule.operation in (Operation.UNKNOWN, Operation.ANY):
        return f"Invalid operation {rule.operation.name}"
    if rule.permission not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {rule.permission.name}"
    if ":" not in rule.principal:
        return (
            f"Could not parse principal from `{rule.principal}` (no colon is present "
            "separating the principal type from the principal name)"
        )
    return None


def filter_problem(condition: AclFilter) -> str | None:
    """Return Kafka's message if a filter of DeleteAcls cannot be used, or None."""
    if (
        condition.resource_type == ResourceType.UNKNOWN
        or condition.pattern_type == PatternType.UNKNOWN
    ):
        return "Unknown patternFilter."
    if condition.operation == Operation.UNKNOWN or condition.permission == Permission.UNKNOWN:
        return "Unknown entryFilter."
    return None


_RESOURCE_TYPES: Final = {int(one): one for one in ResourceType}
_PATTERN_TYPES: Final = {int(one): one for one in PatternType}
_OPERATIONS: Final = {int(one): one for one in Operation}
_PERMISSIONS: Final = {int(one): one for one in Permission}


def _resource_type(number: int) -> ResourceType:
    return _RESOURCE_TYPES.get(number, ResourceType.UNKNOWN)


def _pattern_type(number: int) -> PatternType:
    return _PATTERN_TYPES.get(number, PatternType.UNKNOWN)


def _operation(number: int) -> Operation:
    return _OPERATIONS.get(number, Operation.UNKNOWN)


def _permission(number: int) -> Permission:
    return _PERMISSIONS.get(number, Permission.UNKNOWN)
