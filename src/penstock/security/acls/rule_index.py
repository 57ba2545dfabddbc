"""The index of the access rules of one resource type (pure, internal to the authorizer).

For each pattern, the index has the rules of each grantee (principal and host) as one number: bit
`operation` for an ALLOW, bit `operation + DENY_SHIFT` for a DENY. The number holds the rules
exactly, so a rule is added and removed by one bit and no rule object is kept.

Finding the patterns that match a name costs two dictionary look-ups for the literal ones, and one
binary search for the prefixes. Of the sorted prefixes, the greatest one that is not greater than
the name starts with every prefix that matches: anything between a prefix and a name that starts
with it starts with it too. So each prefix has a link to the longest other one it starts with, and
one chain of links visits every match. The sorted list is built again at the first question after
the set of prefixes changed.

It does NOT know super users, defaults or caches.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.security.acls.values import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

DENY_SHIFT: Final = 16
EVERY_OPERATION: Final = (1 << DENY_SHIFT) - 1
_ALL: Final = 1 << Operation.ALL
_DESCRIBE: Final = 1 << Operation.DESCRIBE
_IMPLIES_DESCRIBE: Final = (
    1 << Operation.READ | 1 << Operation.WRITE | 1 << Operation.DELETE | 1 << Operation.ALTER
)
_DESCRIBE_CONFIGS: Final = 1 << Operation.DESCRIBE_CONFIGS
_ALTER_CONFIGS: Final = 1 << Operation.ALTER_CONFIGS

Grantee = tuple[str, str]
"""The principal and the host of a rule, as the rule names them."""


class Pattern(NamedTuple):
    """One pattern, and the rules of each grantee on it."""

    pattern_type: PatternType
    name: str
    rules: dict[Grantee, int]


def grantees_of(principal: str, host: str) -> tuple[Grantee, ...]:
    """Return the grantees that include this client, the most specific one first."""
    return (
        (principal, host),
        (principal, WILDCARD),
        (WILDCARD_PRINCIPAL, host),
        (WILDCARD_PRINCIPAL, WILDCARD),
    )


def granted(bits: int) -> int:
    """Return the operations that ALLOW rules grant, with the implied ones."""
    if bits & _ALL:
        return EVERY_OPERATION
    allowed = bits & EVERY_OPERATION
    if allowed & _IMPLIES_DESCRIBE:
        allowed |= _DESCRIBE
    if allowed & _ALTER_CONFIGS:
        allowed |= _DESCRIBE_CONFIGS
    return allowed


def named(bits: int) -> int:
    """Return the operations that ALLOW rules name, by their own names or by ALL."""
    return EVERY_OPERATION if bits & _ALL else bits & EVERY_OPERATION


def denied(bits: int) -> int:
    """Return the operations that DENY rules take; a DENY implies no other operation."""
    return named(bits >> DENY_SHIFT)


def bit_of(operation: Operation, permission: Permission) -> int:
    """Return the bit of a rule."""
    return 1 << (operation + DENY_SHIFT if permission == Permission.DENY else operation)


class TypeIndex:
    """The rules of one resource type."""

    __slots__ = ("_are_prefixes_current", "_granted", "_links", "_literal", "_prefixed", "_sorted")

    def __init__(self) -> None:
        self._literal: dict[str, Pattern] = {}
        self._prefixed: dict[str, Pattern] = {}
        self._granted: dict[Grantee, set[tuple[PatternType, str]]] = {}
        """The patterns with rules of each grantee."""
        self._sorted: list[str] = []
        self._links: list[int] = []
        """For each sorted prefix, the position of the longest other one it starts with, or -1."""
        self._are_prefixes_current = True

    def add(self, rule: AclBinding) -> None:
        """Add a rule; a rule that is there already changes nothing."""
        patterns = self._patterns(rule)
        pattern = patterns.get(rule.name)
        if pattern is None:
            pattern = patterns[rule.name] = Pattern(rule.pattern_type, rule.name, {})
            if rule.pattern_type == PatternType.PREFIXED:
                self._are_prefixes_current = False
        grantee = (rule.principal, rule.host)
        pattern.rules[grantee] = pattern.rules.get(grantee, 0) | bit_of(
            rule.operation, rule.permission
        )
        self._granted.setdefault(grantee, set()).add((rule.pattern_type, rule.name))

    def remove(self, rule: AclBinding) -> None:
        """Remove a rule, which must be there."""
        patterns = self._patterns(rule)
        pattern = patterns[rule.name]
        grantee = (rule.principal, rule.host)
        bit = bit_of(rule.operation, rule.permission)
        bits = pattern.rules[grantee]
        assert bits & bit, "the rule is not in the index"
        if bits != bit:
            pattern.rules[grantee] = bits & ~bit
            return
        del pattern.rules[grantee]
        named_patterns = self._granted[grantee]
        named_patterns.discard((rule.pattern_type, rule.name))
        if not named_patterns:
            del self._granted[grantee]
        if not pattern.rules:
            del patterns[rule.name]
            if rule.pattern_type == PatternType.PREFIXED:
                self._are_prefixes_current = False

    @property
    def is_empty(self) -> bool:
        """Whether there is no rule."""
        return not self._granted

    def matching(self, name: str) -> list[Pattern]:
        """Return the patterns that match a name: equal, prefixes (the longest first), `*`."""
        found = []
        literal = self._literal.get(name)
        if literal is not None:
            found.append(literal)
        if self._prefixed:
            found += self._prefixes(name)
        if name != WILDCARD:
            wildcard = self._literal.get(WILDCARD)
            if wildcard is not None:
                found.append(wildcard)
        return found

    def allowed(self, name: str, grantees: tuple[Grantee, ...], default: int) -> int:
        """Return the operations that the rules allow; `default` if no rule has this resource."""
        patterns = self.matching(name)
        if not patterns:
            return default
        bits = 0
        for pattern in patterns:
            bits |= _bits(pattern, grantees)
        return granted(bits) & ~denied(bits)

    def allowed_somewhere(self, grantees: tuple[Grantee, ...]) -> int:
        """Return the operations that the rules allow on some resource of the type, as Kafka does.

        Kafka asks for rules that name the operation or ALL, so an implied DESCRIBE does not count.
        An ALLOW for `*` counts although DENY rules may take many names. Any other ALLOW counts
        unless a DENY has the same name, or a prefix that its name starts with.
        """
        wildcard = self._literal.get(WILDCARD)
        everywhere = 0 if wildcard is None else _bits(wildcard, grantees)
        allowed = named(everywhere)
        for pattern_type, name in self._names_of(grantees):
            if pattern_type == PatternType.PREFIXED:
                bits = _bits(self._prefixed[name], grantees)
                taken = 0
            elif name != WILDCARD:
                bits = _bits(self._literal[name], grantees)
                taken = denied(bits)
            else:
                continue
            for prefix in self._prefixes(name):
                taken |= denied(_bits(prefix, grantees))
            allowed |= named(bits) & ~taken
        return allowed & ~denied(everywhere)

    def _names_of(self, grantees: tuple[Grantee, ...]) -> set[tuple[PatternType, str]]:
        names: set[tuple[PatternType, str]] = set()
        for grantee in grantees:
            names |= self._granted.get(grantee, set())
        return names

    def _patterns(self, rule: AclBinding) -> dict[str, Pattern]:
        return self._prefixed if rule.pattern_type == PatternType.PREFIXED else self._literal

    def _prefixes(self, name: str) -> Iterator[Pattern]:
        """Yield the prefixes that a name starts with, the longest first."""
        if not self._are_prefixes_current:
            self._sort_prefixes()
        position = bisect_right(self._sorted, name) - 1
        while position >= 0:
            prefix = self._sorted[position]
            if name.startswith(prefix):
                yield self._prefixed[prefix]
            position = self._links[position]

    def _sort_prefixes(self) -> None:
        self._sorted = sorted(self._prefixed)
        self._links = []
        for position, prefix in enumerate(self._sorted):
            link = position - 1
            while link >= 0 and not prefix.startswith(self._sorted[link]):
                link = self._links[link]
            self._links.append(link)
        self._are_prefixes_current = True


def rule_of(
    resource_type: ResourceType, pattern: Pattern, grantee: Grantee, bit: int
) -> AclBinding:
    """Return the rule of one bit."""
    number = bit.bit_length() - 1
    is_deny = number >= DENY_SHIFT
    return AclBinding(
        resource_type,
        pattern.name,
        pattern.pattern_type,
        *grantee,
        Operation(number - DENY_SHIFT if is_deny else number),
        Permission.DENY if is_deny else Permission.ALLOW,
    )


def _bits(pattern: Pattern, grantees: tuple[Grantee, ...]) -> int:
    bits = 0
    rules = pattern.rules
    for grantee in grantees:
        bits |= rules.get(grantee, 0)
    return bits
