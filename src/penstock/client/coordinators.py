"""`Coordinators`: the coordinators of groups or transactional ids, and calls to them.

FindCoordinator finds a coordinator, and the result is cached. When a call to the coordinator fails,
it is discarded and found again, and the call is retried if `retries` allows it. The search
is always retried while the cluster reports that the coordinator is not available yet: the first
request makes the cluster create its internal topic, which needs a moment. It is NOT shared between
threads.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from penstock.client.cluster import Cluster
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call, raise_error
from penstock.client.transport.pool import Started
from penstock.client.transport.retries import may_repeat
from penstock.core.errors import BrokerAnswerError, ClientError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

KEYS_PER_QUESTION_MAX: Final = 1_000
"""Keys in one FindCoordinator: a hundred kilobytes of transactional ids."""

Result = TypeVar("Result")


class CoordinatorKind(IntEnum):
    """The type of coordinator; the value is the key type on the wire."""

    GROUP = 0
    TRANSACTION = 1


class Coordinator(NamedTuple):
    """The broker that coordinates a key."""

    broker_id: int
    address: Address

    def __str__(self) -> str:
        return f"{self.address} ({self.broker_id})"


class Coordinators:
    """The known coordinators of one kind."""

    def __init__(self, cluster: Cluster, kind: CoordinatorKind) -> None:
        self._cluster = cluster
        self._kind = kind
        self._known: dict[str, Coordinator] = {}
        self._knows_brokers = False

    def remember(self, key: str, coordinator: Coordinator) -> None:
        """Store the coordinator of a key from another source, such as a list of groups."""
        self._known[key] = coordinator

    def find(self, key: str) -> Coordinator:
        """Return the coordinator of this group or transactional id."""
        if key not in self._known:
            if not self._knows_brokers:  # only requests with known brokers are retried
                self._cluster.brokers()
                self._knows_brokers = True
            self._known[key] = self._cluster.repeat(
                lambda: self._cluster.anywhere(find(self._kind, key)),
                repeatable=True,
            )
        return self._known[key]

    def ask(self, key: str, call: Call[Result], *, repeatable: bool) -> Result:
        """Send one call to the coordinator of this key."""

        def attempt() -> Result:
            coordinator = self.find(key)
            try:
                return self._cluster.at(coordinator.address, call)
            except ClientError:
                self._known.pop(key, None)
                raise

        return self._cluster.repeat(attempt, repeatable=repeatable)

    def find_all(self, keys: Iterable[str]) -> dict[str, Coordinator]:
        """Return the coordinator of each key, with one request for all unknown keys."""
        wanted = list(keys)
        missing = [key for key in wanted if key not in self._known]
        for position in range(0, len(missing), KEYS_PER_QUESTION_MAX):
            some = missing[position : position + KEYS_PER_QUESTION_MAX]
            if len(some) == 1:
                self.find(some[0])  # old brokers support only this request
            else:
                self._known.update(self._found(find_all(self._kind, some)))
        return {key: self._known[key] for key in wanted}

    def ask_each(
        self, calls: Mapping[str, Call[Result]], *, repeatable: bool
    ) -> dict[str, Result | BrokerAnswerError]:
        """Send a call to the coordinator of each key, all in flight at once.

        A non-retriable error code is the result of its key; the other calls continue.
        """
        results: dict[str, Result | BrokerAnswerError] = {}

        def attempt() -> None:
            missing = [key for key in calls if key not in results]
            failure: ClientError | None = None
            under_way: list[tuple[str, Started[Result]]] = []
            for key, coordinator in self.find_all(missing).items():
                try:
                    under_way.append((key, self._cluster.start(coordinator.address, calls[key])))
                except ClientError as error:
                    failure = self._failed(key, error)
            for key, started in under_way:
                try:
                    results[key] = started.result()
                except BrokerAnswerError as error:
                    if may_repeat(error, repeatable=repeatable):
                        failure = self._failed(key, error)
                    else:
                        results[key] = error
                except ClientError as error:
                    failure = self._failed(key, error)
            if failure is not None:
                raise failure

        self._cluster.repeat(attempt, repeatable=repeatable)
        return results

    def forget(self, key: str) -> None:
        """Discard the coordinator of this key, which proved wrong; the next use finds it again."""
        self._known.pop(key, None)

    def _found(self, question: Call[dict[str, Coordinator]]) -> dict[str, Coordinator]:
        return self._cluster.repeat(lambda: self._cluster.anywhere(question), repeatable=True)

    def _failed(self, key: str, error: ClientError) -> ClientError:
        self.forget(key)
        return error


def find_all(kind: CoordinatorKind, keys: Sequence[str]) -> Call[dict[str, Coordinator]]:
    """Find the coordinators of these keys at any broker; needs version 4 or later (Kafka 3.0)."""
    request = FindCoordinatorRequest(key_type=kind.value, coordinator_keys=tuple(keys))

    def read(answer: FindCoordinatorResponse) -> dict[str, Coordinator]:
        found = {}
        for one in answer.coordinators:
            raise_error(one.error_code, one.error_message, one.key)
            found[one.key] = Coordinator(one.node_id, Address(one.host, one.port))
        for key in keys:
            if key not in found:
                raise_error(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, "the response names no coordinator", key
                )
        return found

    return Call(request, FindCoordinatorResponse, read)


def find(kind: CoordinatorKind, key: str) -> Call[Coordinator]:
    """Find the coordinator of this key at any broker; before version 4 a request has one key."""
    request = FindCoordinatorRequest(key_type=kind.value, coordinator_keys=(key,))

    def read(answer: FindCoordinatorResponse) -> Coordinator:
        found = next((one for one in answer.coordinators if one.key == key), None)
        if found is None:
            raise_error(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "the response names no coordinator", key
            )
            raise AssertionError("unreachable")
        raise_error(found.error_code, found.error_message, key)
        return Coordinator(found.node_id, Address(found.host, found.port))

    return Call(request, FindCoordinatorResponse, read)
