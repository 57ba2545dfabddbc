"""The names of access rules in texts: the rules file, the command line and messages (pure).

Operations and resource types have Kafka's names, with or without underscores, in upper or lower
case: `DescribeConfigs` is `DESCRIBE_CONFIGS`. A resource is its type, a colon and its name. A name
that ends with `*` is a prefix, and `*` alone is each name of the type.

Texts for people (`rule_text`) have no control characters, so a name cannot forge a line of a log.
"""

from typing import Final

from penstock.security.acls.values import (
    WILDCARD,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)


def _title(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


OPERATION_NAMES: Final[dict[Operation, str]] = {
    operation: _title(operation.name)
    for operation in Operation
    if operation not in (Operation.UNKNOWN, Operation.ANY)
}
"""The operations of rules, such as `DescribeConfigs`."""
RESOURCE_TYPE_NAMES: Final[dict[ResourceType, str]] = {
    resource_type: _title(resource_type.name)
    for resource_type in ResourceType
    if resource_type not in (ResourceType.UNKNOWN, ResourceType.ANY)
}
"""The types of resources that rules protect, such as `TransactionalId`."""

_OPERATIONS: Final = {
    text: operation
    for operation, name in OPERATION_NAMES.items()
    for text in (name.lower(), operation.name.lower())
}
_RESOURCE_TYPES: Final = {
    text: resource_type
    for resource_type, name in RESOURCE_TYPE_NAMES.items()
    for text in (name.lower(), resource_type.name.lower())
}


def read_operation(text: str) -> Operation | None:
    """Return the operation of this name, or None."""
    return _OPERATIONS.get(text.lower())


def read_resource_type(text: str) -> ResourceType | None:
    """Return the resource type of this name, or None."""
    return _RESOURCE_TYPES.get(text.lower())


def read_pattern(text: str) -> tuple[str, PatternType]:
    """Return the name and the pattern type of a text such as `orders`, `orders-*` or `*`."""
    if text != WILDCARD and text.endswith(WILDCARD):
        return text[:-1], PatternType.PREFIXED
    return text, PatternType.LITERAL


def pattern_text(name: str, pattern_type: PatternType) -> str:
    """Return the text of a pattern; `read_pattern` returns the pattern unless it is ambiguous."""
    return name + WILDCARD if pattern_type == PatternType.PREFIXED else name


def is_pattern_text_ambiguous(name: str, pattern_type: PatternType) -> bool:
    """Whether the text of this pattern reads as another one: a literal name that ends with `*`."""
    return read_pattern(pattern_text(name, pattern_type)) != (name, pattern_type)


def resource_text(resource_type: ResourceType, name: str, pattern_type: PatternType) -> str:
    """Return a resource pattern as text: `Topic:orders-*`."""
    return f"{RESOURCE_TYPE_NAMES[resource_type]}:{pattern_text(name, pattern_type)}"


def rule_text(rule: AclBinding) -> str:
    """Return one rule for people: `deny Read on Topic:orders-* for User:alice from any host`."""
    effect = "allow" if rule.permission == Permission.ALLOW else "deny"
    resource = resource_text(rule.resource_type, rule.name, rule.pattern_type)
    if is_pattern_text_ambiguous(rule.name, rule.pattern_type):
        resource += " (literal)"
    host = "any host" if rule.host == WILDCARD else f"host {rule.host}"
    operation = OPERATION_NAMES[rule.operation]
    return printable(f"{effect} {operation} on {resource} for {rule.principal} from {host}")


def printable(text: str) -> str:
    """Return the text with its control characters escaped."""
    return text if text.isprintable() else ascii(text)[1:-1]
