"""`AclAuthorizer`: applies the access rules in force, as Apache Kafka's StandardAuthorizer (pure).

Guarantees, in this order:

1. A super user may do everything.
2. A rule applies if its pattern matches the name, its principal is the client's or `User:*`, its
   host is the client's address or `*`, and its operation is the asked one or ALL. An ALLOW of READ,
   WRITE, DELETE or ALTER also allows DESCRIBE, and one of ALTER_CONFIGS also DESCRIBE_CONFIGS.
3. A DENY that applies denies. Otherwise an ALLOW that applies allows.
4. If no rule at all matches the resource, `allow_everyone_if_no_acl_found` decides; if some rule
   matches but none applies to this client, the answer is no.

Rules come from several origins, and all are in force: a DENY of one wins over an ALLOW of another.

A decision covers all operations of one client on one resource and is cached. The cache is bounded,
and every change of the rules drops it, so a decision never outlives the rule behind it. A cached
decision costs one dictionary look-up and a bit test.

It does NOT log, count, or read a clock; and it does NOT validate rules (`security.acls.filters`).
It is used by one thread.
"""

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Final, NamedTuple

from penstock.security.acls.host_text import kafka_host
from penstock.security.acls.rule_index import (
    DENY_SHIFT,
    EVERY_OPERATION,
    Grantee,
    Pattern,
    TypeIndex,
    granted,
    grantees_of,
    named,
    rule_of,
)
from penstock.security.acls.rule_text import rule_text
from penstock.security.acls.values import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.principal import Principal

DECISIONS_MAX: Final = 20_000
"""Cached decisions: two generations of half that number. 20,000 are 100 clients on 200 topics."""
CACHED_NAME_CHARACTERS_MAX: Final = 512
"""Characters of principal, address and name together. A client chooses names of up to 32 KiB, so
longer ones are decided each time: 20,000 of them would otherwise keep 600 MiB."""
_GENERATION_MAX: Final = DECISIONS_MAX // 2
_ANY_NAME: Final = "hardcode"
"""Kafka asks for this name first when it looks for some resource that a client may use."""

_Question = tuple[Principal, str, ResourceType, str | None]
"""A client and a resource; the name None is some resource of the type."""


class RuleOrigin(Enum):
    """The place where rules are stored."""

    API = "api"
    """The cluster's metadata: rules of CreateAcls."""
    FILE = "file"
    """The rules file of the settings."""


class Decision(NamedTuple):
    """The answer to one question, and its reason."""

    is_allowed: bool
    rule: AclBinding | None
    """The rule that decided; None if no rule did."""
    reason: str


class AclAuthorizer:
    """The rules in force, and decisions by them."""

    __slots__ = ("_decisions", "_default", "_older", "_rules", "_super_users", "_types")

    def __init__(
        self,
        super_users: frozenset[str] = frozenset(),
        *,
        allow_everyone_if_no_acl_found: bool = False,
    ) -> None:
        self._super_users = super_users
        self._default = EVERY_OPERATION if allow_everyone_if_no_acl_found else 0
        self._rules: dict[RuleOrigin, set[AclBinding]] = {origin: set() for origin in RuleOrigin}
        self._types: dict[ResourceType, TypeIndex] = {}
        self._decisions: dict[_Question, int] = {}
        self._older: dict[_Question, int] = {}
        """The generation before; a decision that is used again moves to the newer one."""

    # --- Rules ---

    def rules(self, origin: RuleOrigin) -> AbstractSet[AclBinding]:
        """Return the rules of one origin, to be read only; later changes show in it."""
        return self._rules[origin]

    def replace(self, origin: RuleOrigin, rules: Iterable[AclBinding]) -> None:
        """Put these rules in force instead of all others of the origin."""
        new = set(rules)
        old = self._rules[origin]
        self.change(origin, added=new - old, removed=old - new)

    def change(
        self,
        origin: RuleOrigin,
        *,
        added: Collection[AclBinding] = (),
        removed: Collection[AclBinding] = (),
    ) -> None:
        """Remove some rules of an origin and add others.

        An added rule that is there and a removed one that is not change nothing. Raises
        `ValueError`, and changes nothing, if an added rule is not concrete.
        """
        if not added and not removed:
            return
        for rule in added:
            _check_concrete(rule)
        own = self._rules[origin]
        others = [rules for one, rules in self._rules.items() if one is not origin]
        for rule in removed:
            if rule in own:
                own.remove(rule)
                if not any(rule in rules for rules in others):
                    self._remove_from_index(rule)
        for rule in added:
            if rule not in own:
                own.add(rule)
                index = self._types.get(rule.resource_type)
                if index is None:
                    index = self._types[rule.resource_type] = TypeIndex()
                index.add(rule)
        self._decisions = {}
        self._older = {}

    def _remove_from_index(self, rule: AclBinding) -> None:
        index = self._types[rule.resource_type]
        index.remove(rule)
        if index.is_empty:
            del self._types[rule.resource_type]

    # --- Decisions ---

    def allows(
        self,
        principal: Principal,
        address: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Whether the rules allow this operation on this resource."""
        allowed = self._decisions.get((principal, address, resource_type, name))
        if allowed is None:
            allowed = self._find((principal, address, resource_type, name))
        return allowed >> operation & 1 == 1

    def allows_any(
        self,
        principal: Principal,
        address: str,
        operation: Operation,
        resource_type: ResourceType,
    ) -> bool:
        """Whether the rules allow this operation on some resource of the type, as Kafka does.

        See `TypeIndex.allowed_somewhere` for the rules that count.
        """
        allowed = self._decisions.get((principal, address, resource_type, None))
        if allowed is None:
            allowed = self._find((principal, address, resource_type, None))
        return allowed >> operation & 1 == 1

    def decide(
        self,
        principal: Principal,
        address: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> Decision:
        """Return the decision with its reason. It is not cached: for reports, not for requests."""
        if str(principal) in self._super_users:
            return Decision(is_allowed=True, rule=None, reason="super user")
        index = self._types.get(resource_type)
        patterns = [] if index is None else index.matching(name)
        if not patterns:
            is_allowed = self._default != 0
            reason = "no rule matches the resource" + (" and everyone may" if is_allowed else "")
            return Decision(is_allowed, None, reason)
        grantees = grantees_of(str(principal), kafka_host(address))
        for permission, effect in ((Permission.DENY, "denied"), (Permission.ALLOW, "allowed")):
            bits = _deciding_bits(operation, permission)
            rule = _first_rule(resource_type, patterns, grantees, bits)
            if rule is not None:
                is_allowed = permission == Permission.ALLOW
                return Decision(is_allowed, rule, f"{effect} by the rule: {rule_text(rule)}")
        return Decision(is_allowed=False, rule=None, reason="no rule allows it")

    @property
    def cached_decisions(self) -> int:
        """The number of cached decisions, at most `DECISIONS_MAX`."""
        return len(self._decisions) + len(self._older)

    def _find(self, question: _Question) -> int:
        """Return the allowed operations for a question that is not in the newer generation."""
        allowed = self._older.get(question)
        if allowed is None:
            allowed = self._evaluate(question)
        principal, address, _, name = question
        length = len(principal.name) + len(address) + (0 if name is None else len(name))
        if length <= CACHED_NAME_CHARACTERS_MAX:
            if len(self._decisions) >= _GENERATION_MAX:
                self._older = self._decisions
                self._decisions = {}
            self._decisions[question] = allowed
        return allowed

    def _evaluate(self, question: _Question) -> int:
        principal, address, resource_type, name = question
        text = str(principal)
        if text in self._super_users:
            return EVERY_OPERATION
        index = self._types.get(resource_type)
        if index is None:
            return self._default
        grantees = grantees_of(text, kafka_host(address))
        if name is not None:
            return index.allowed(name, grantees, self._default)
        allowed = index.allowed(_ANY_NAME, grantees, self._default)
        return allowed | index.allowed_somewhere(grantees)


def _check_concrete(rule: AclBinding) -> None:
    if (
        rule.resource_type <= ResourceType.ANY
        or rule.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED)
        or rule.operation <= Operation.ANY
        or rule.permission not in (Permission.DENY, Permission.ALLOW)
        or not rule.name
    ):
        raise ValueError(f"not a rule that can be in force: {rule}")


def _deciding_bits(operation: Operation, permission: Permission) -> list[int]:
    """Return the bits of the rules that decide about an operation, its own first."""
    own = 1 << operation
    if permission == Permission.DENY:
        effective, shift = named, DENY_SHIFT
    else:
        effective, shift = granted, 0
    others = [1 << one for one in Operation if one != operation]
    return [bit << shift for bit in (own, *others) if effective(bit) & own]


def _first_rule(
    resource_type: ResourceType,
    patterns: list[Pattern],
    grantees: tuple[Grantee, ...],
    bits: list[int],
) -> AclBinding | None:
    """Return the rule with one of these bits on the most specific pattern and grantee."""
    for pattern in patterns:
        for grantee in grantees:
            found = pattern.rules.get(grantee, 0)
            for bit in bits:
                if found & bit:
                    return rule_of(resource_type, pattern, grantee, bit)
    return None
