"""`RuleSet`: an authorizer and a decision log in one, whose rules a test sets.

Rules are exact: no operation implies another, and no rule is for one principal or address.
"""

from collections.abc import Mapping, Sequence

from penstock.broker.peer import Peer
from penstock.security.acls.values import Operation, ResourceType
from penstock.security.principal import Principal

Rule = tuple[Operation, ResourceType, str]


class RuleSet:
    """Allows everything until a test calls `only` or `all_but`."""

    def __init__(self) -> None:
        self._allowed: frozenset[Rule] | None = None
        self._denied: frozenset[Rule] = frozenset()
        self.denials: list[Rule] = []
        """The denials that were logged since the rules were set."""
        self.api_keys: set[int] = set()
        """The APIs of these denials."""
        self.changes: list[Rule] = []
        """The allowed changes that were logged since then."""
        self.named: list[dict[str, str]] = []
        """The changes of rules and users that were logged since then."""

    def only(self, *allowed: Rule) -> None:
        """Deny everything else."""
        self._set(frozenset(allowed), frozenset())

    def all_but(self, *denied: Rule) -> None:
        """Allow everything else; without rules, everything."""
        self._set(None, frozenset(denied))

    def _set(self, allowed: frozenset[Rule] | None, denied: frozenset[Rule]) -> None:
        self._allowed = allowed
        self._denied = denied
        self.denials.clear()
        self.api_keys.clear()
        self.changes.clear()
        self.named.clear()

    def allows(
        self,
        principal: Principal,
        address: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        rule = (operation, resource_type, name)
        return rule not in self._denied and (self._allowed is None or rule in self._allowed)

    def allows_any(
        self, principal: Principal, address: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        kind = (operation, resource_type)
        if self._allowed is None:
            return not any(rule[:2] == kind for rule in self._denied)
        return any(rule[:2] == kind for rule in self._allowed)

    def denied(
        self,
        peer: Peer,
        api_key: int,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> None:
        self.denials.append((operation, resource_type, name))
        self.api_keys.add(api_key)

    def allowed(
        self,
        peer: Peer,
        api_key: int,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> None:
        self.changes.append((operation, resource_type, name))

    def changed(
        self, peer: Peer, api_key: int, changes: Sequence[Mapping[str, str]], others: int
    ) -> None:
        self.named += [dict(one) for one in changes]
