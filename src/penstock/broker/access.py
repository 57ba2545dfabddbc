"""`Access`: may this client do that? Every handler asks here, through `RequestContext`.

The rules are the authorizer's (`security.acls.authorizer`); this class adds the client of the
request, counts denials for each API, and reports decisions to the audit log. A broker without an
authorizer has no `Access`, and each client may do everything.

It does NOT know which API needs which permission: the handler of the API does, because the order
of its checks and its answer belong to the API.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.broker.peer import Peer
from penstock.security.acls.values import Operation, ResourceType
from penstock.security.audit import CHANGES
from penstock.security.principal import Principal


class Authorizer(Protocol):
    """Applies the rules in force."""

    def allows(
        self,
        principal: Principal,
        address: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Whether the rules allow this operation on this resource."""
        ...

    def allows_any(
        self,
        principal: Principal,
        address: str,
        operation: Operation,
        resource_type: ResourceType,
    ) -> bool:
        """Whether the rules allow this operation on some resource of the type."""
        ...


class DecisionLog(Protocol):
    """Records decisions about requests, for the audit log and metrics."""

    def denied(
        self,
        peer: Peer,
        api_key: int,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> None:
        """A request was not allowed."""
        ...

    def allowed(
        self,
        peer: Peer,
        api_key: int,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> None:
        """A change was allowed."""
        ...

    def changed(
        self, peer: Peer, api_key: int, changes: Sequence[Mapping[str, str]], others: int
    ) -> None:
        """Rules or users were changed; `others` is the number of the ones without a name here."""
        ...


class Access:
    """The decisions for requests of clients."""

    __slots__ = ("_authorizer", "_log")

    def __init__(self, authorizer: Authorizer, log: DecisionLog) -> None:
        self._authorizer = authorizer
        self._log = log

    def allows(
        self,
        peer: Peer,
        api_key: int,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Whether the client may; a denial is logged unless it only hides something.

        So is a change that is allowed.
        """
        if self._authorizer.allows(peer.principal, peer.address, operation, resource_type, name):
            if is_logged and CHANGES >> operation & 1:
                self._log.allowed(peer, api_key, operation, resource_type, name)
            return True
        if is_logged:
            self._log.denied(peer, api_key, operation, resource_type, name)
        return False

    def record_change(
        self,
        peer: Peer,
        api_key: int,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> None:
        """Log a change of a resource that a permission for the cluster allows."""
        self._log.allowed(peer, api_key, operation, resource_type, name)

    def allows_any(
        self, peer: Peer, api_key: int, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether the client may do this to some resource of the type."""
        if self._authorizer.allows_any(peer.principal, peer.address, operation, resource_type):
            return True
        self._log.denied(peer, api_key, operation, resource_type, "*")
        return False

    def operations(self, peer: Peer, resource_type: ResourceType, name: str, bits: int) -> int:
        """Return those operations of a bit set that the client may do; nothing is logged."""
        allowed = 0
        for operation in Operation:
            if bits >> operation & 1 and self._authorizer.allows(
                peer.principal, peer.address, operation, resource_type, name
            ):
                allowed |= 1 << operation
        return allowed
