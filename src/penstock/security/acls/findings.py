"""Checks of the access rules in force, for `penstock doctor` (pure).

It finds rules that are probably mistakes: an ALLOW on the cluster for every user, an ALLOW that
DENY rules take back entirely, a rule that no client can match, and a rule for a name that does not
exist. It reports; it does NOT change anything, and no finding means a rule is invalid.

"Entirely" is exact: each operation that the ALLOW grants, the implied ones too, is denied to at
least the same clients on at least the same names. An ALLOW of READ with a DENY of READ still
grants DESCRIBE, so it is no finding.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from penstock.security.acls.host_text import can_equal_an_address
from penstock.security.acls.rule_index import (
    TypeIndex,
    bit_of,
    denied,
    granted,
    grantees_of,
)
from penstock.security.acls.rule_text import rule_text
from penstock.security.acls.values import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.principal import USER

_CLUSTER_FOR_EVERYONE: Final = (
    "Every user has a permission on the whole cluster."
    " Name the users that need it instead of User:*."
)
_VOID_ALLOW: Final = "DENY rules take back all that this rule allows. Delete it or the DENY rules."
_NO_CLIENT_WITH_HOST: Final = (
    "No client has this host: rules compare addresses, not host names or networks, and IPv6"
    " addresses have all eight groups (0:0:0:0:0:0:0:1). Create the rule again with an address."
)
_NO_CLIENT_WITH_PRINCIPAL: Final = (
    f"No client has this principal: its kind is not {USER}. Create the rule again with {USER}:name."
)
_NO_RESOURCE: Final = (
    "No existing name matches. Delete the rule if it is a leftover or a typing error."
)


class FindingKind(Enum):
    """The kind of a probable mistake."""

    CLUSTER_FOR_EVERYONE = "cluster for everyone"
    VOID_ALLOW = "void allow"
    NO_CLIENT = "no client"
    NO_RESOURCE = "no resource"


class RuleFinding(NamedTuple):
    """One rule that is probably a mistake."""

    kind: FindingKind
    rule: AclBinding
    text: str
    """The problem and the remedy, in one line."""


def rule_findings(
    rules: Collection[AclBinding], existing: Mapping[ResourceType, Iterable[str]]
) -> tuple[RuleFinding, ...]:
    """Return the findings about these rules, in their order.

    `existing` has the names that exist. Rules of a type without an entry are not compared with
    names: groups and transactional ids, for example, are created by their first use.
    """
    indexes: dict[ResourceType, TypeIndex] = {}
    for rule in rules:
        if rule.permission == Permission.DENY:
            indexes.setdefault(rule.resource_type, TypeIndex()).add(rule)
    names = {resource_type: sorted(found) for resource_type, found in existing.items()}
    return tuple(
        RuleFinding(kind, rule, f"{problem} The rule: {rule_text(rule)}.")
        for rule in rules
        for kind, problem in _problems(rule, indexes.get(rule.resource_type), names)
    )


def _problems(
    rule: AclBinding, denials: TypeIndex | None, names: Mapping[ResourceType, list[str]]
) -> Iterator[tuple[FindingKind, str]]:
    if rule.permission == Permission.ALLOW:
        if rule.resource_type == ResourceType.CLUSTER and rule.principal == WILDCARD_PRINCIPAL:
            yield FindingKind.CLUSTER_FOR_EVERYONE, _CLUSTER_FOR_EVERYONE
        if denials is not None and _is_void(rule, denials):
            yield FindingKind.VOID_ALLOW, _VOID_ALLOW
    if not can_equal_an_address(rule.host):
        yield FindingKind.NO_CLIENT, _NO_CLIENT_WITH_HOST
    if rule.principal.partition(":")[0] != USER:
        yield FindingKind.NO_CLIENT, _NO_CLIENT_WITH_PRINCIPAL
    known = names.get(rule.resource_type)
    if known is not None and not _has_match(rule, known):
        yield FindingKind.NO_RESOURCE, _NO_RESOURCE


def _is_void(rule: AclBinding, denials: TypeIndex) -> bool:
    """Whether DENY rules for these clients and these names, or more, take each operation."""
    taken = 0
    for pattern in denials.matching(rule.name):
        is_wider = (
            pattern.pattern_type == PatternType.PREFIXED
            or pattern.name == WILDCARD
            or rule.pattern_type == PatternType.LITERAL
        )
        if rule.name == WILDCARD and rule.pattern_type == PatternType.LITERAL:
            is_wider = pattern.pattern_type == PatternType.LITERAL
        if is_wider:
            for grantee in grantees_of(rule.principal, rule.host):
                taken |= denied(pattern.rules.get(grantee, 0))
    return not granted(bit_of(rule.operation, rule.permission)) & ~taken


def _has_match(rule: AclBinding, names: list[str]) -> bool:
    """Whether one of the sorted names matches the pattern of a rule."""
    if rule.pattern_type == PatternType.LITERAL and rule.name == WILDCARD:
        return True
    position = bisect_left(names, rule.name)
    if position == len(names):
        return False
    if rule.pattern_type == PatternType.PREFIXED:
        return names[position].startswith(rule.name)
    return names[position] == rule.name
