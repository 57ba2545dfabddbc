"""`Coordinators`: who coordinates a group or a transactional id, and calls to whoever that is.

A coordinator is found by FindCoordinator and remembered. When a call to it fails, it is forgotten
and found again, and the call is repeated if `client.retries` allows it. Finding is always repeated
while the cluster says that the coordinator is not there yet: the first question makes the cluster
create its internal topic, which takes a moment. It is NOT shared between threads.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, TypeVar

from penstock.client.addresses import Address
from penstock.client.calls import Connection, raise_error
from penstock.client.cluster import Cluster
from penstock.core.errors import ClientError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

Result = TypeVar("Result")


class CoordinatorKind(IntEnum):
    """What is coordinated; the value is the key type on the wire."""

    GROUP = 0
    TRANSACTION = 1


class Coordinator(NamedTuple):
    """The broker that coordinates a key."""

    broker_id: int
    address: Address

    def __str__(self) -> str:
        return f"{self.address} ({self.broker_id})"


class Coordinators:
    """The coordinators of one kind, as far as they are known."""

    def __init__(self, cluster: Cluster, kind: CoordinatorKind) -> None:
        self._cluster = cluster
        self._kind = kind
        self._known: dict[str, Coordinator] = {}
        self._knows_brokers = False

    def remember(self, key: str, coordinator: Coordinator) -> None:
        """Learn from elsewhere who coordinates a key: a list of groups says it by the way."""
        self._known[key] = coordinator

    def find(self, key: str) -> Coordinator:
        """Who coordinates this group or transactional id."""
        if key not in self._known:
            if not self._knows_brokers:  # a cluster whose brokers are known is asked repeatedly
                self._cluster.brokers()
                self._knows_brokers = True
            self._known[key] = self._cluster.repeat(
                lambda: self._cluster.anywhere(lambda one: find(one, self._kind, key)),
                repeatable=True,
            )
        return self._known[key]

    def ask(self, key: str, call: Callable[[Connection], Result], *, repeatable: bool) -> Result:
        """Make one call to the coordinator of this key."""

        def attempt() -> Result:
            coordinator = self.find(key)
            try:
                return self._cluster.at(coordinator.address, call)
            except ClientError:
                self._known.pop(key, None)
                raise

        return self._cluster.repeat(attempt, repeatable=repeatable)


def find(connection: Connection, kind: CoordinatorKind, key: str) -> Coordinator:
    """Ask any broker who coordinates this key; versions since 4 know many keys, older ones one."""
    request = FindCoordinatorRequest(key_type=kind.value, coordinator_keys=(key,))
    response = connection.call(request, FindCoordinatorResponse)
    found = next((one for one in response.coordinators if one.key == key), None)
    if found is None:
        raise_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the answer names nobody", key)
        raise AssertionError("unreachable")
    raise_error(found.error_code, found.error_message, key)
    return Coordinator(found.node_id, Address(found.host, found.port))
