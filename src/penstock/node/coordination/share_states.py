"""`NodeShareStates`: `coordinator.shares.ports.ShareStates`, wherever the share coordinator is.

The coordinator of a share-partition is the leader of its partition of `__share_group_state`. On
this broker, a call goes to the shard in the same turn of the loop. On another broker, it is sent
over the connections between brokers, in order, together with other calls of the moment. The topic
is created for the first call. It retries nothing, and knows NO state.
"""

from collections.abc import Callable, Coroutine
from typing import Final, Protocol, TypeVar

from penstock.broker.error_mapping import code_of, message_of
from penstock.coordinator.driver import Answer
from penstock.coordinator.hashing import key_partition
from penstock.coordinator.kinds import TOPICS, CoordinatorKind
from penstock.coordinator.shard import Asked
from penstock.coordinator.shares import share_messages as messages
from penstock.coordinator.shares.ports import (
    Refusal,
    ShareChange,
    ShareKey,
    ShareState,
    ShareSummary,
)
from penstock.coordinator.shares.share_keys import key_text
from penstock.coordinator.shares.share_messages import StateRequest
from penstock.core.deferred import Deferred
from penstock.core.errors import CoordinatorNotAvailableError, PenstockError
from penstock.protocol.codec import Message
from penstock.protocol.messages.read_share_group_state import ReadShareGroupStateResponse
from penstock.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryResponse,
)

Result = TypeVar("Result")

_VERSION: Final = 1
"""Of requests that this broker asks itself: the newest."""


class ShareCoordinators(Protocol):
    """The coordinators of this broker, as far as they are needed here."""

    def partition_count(self, kind: CoordinatorKind) -> int:
        """Partitions of the internal topic; 0 while it does not exist."""
        ...

    def submit_asked(self, kind: CoordinatorKind, partition: int, asked: Asked) -> Answer:
        """Send a request to the shard of a partition."""
        ...

    def leader_elsewhere(self, kind: CoordinatorKind, partition: int) -> int | None:
        """Return the other broker that leads a partition; None if this one does, or none."""
        ...

    async def ensure_topic(self, kind: CoordinatorKind) -> PenstockError | None:
        """Create the internal topic if it does not exist; return the error if that fails."""
        ...


class StatePeers(Protocol):
    """The other brokers of the cluster."""

    async def share_state(
        self, broker_id: int, request: StateRequest
    ) -> "messages.StateResponse | PenstockError":
        """Send a request for one share-partition to the coordinator on a broker."""
        ...


class StartTask(Protocol):
    """Starts coroutines whose tasks are awaited."""

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run the coroutine."""
        ...


class NodeShareStates:
    """The delivery state of all share-partitions of the cluster."""

    def __init__(
        self, coordinators: ShareCoordinators, peers: StatePeers | None, tasks: StartTask
    ) -> None:
        """`peers` is None for a broker that is alone."""
        self._coordinators = coordinators
        self._peers = peers
        self._tasks = tasks

    # --- The port ---

    def initialize(
        self, key: ShareKey, state_epoch: int, start_offset: int
    ) -> Deferred[Refusal | None]:
        """Create or reset the state."""
        request = messages.initialize_request(key, state_epoch, start_offset)
        return self._ask(key, request, _refusal_of, _same)

    def read(self, key: ShareKey, leader_epoch: int) -> Deferred[ShareState | Refusal]:
        """Return the state, and fence earlier leaders."""
        return self._ask(key, messages.read_request(key, leader_epoch), _state_of, _same)

    def write(self, key: ShareKey, change: ShareChange) -> Deferred[Refusal | None]:
        """Merge a change into the state."""
        return self._ask(key, messages.write_request(key, change), _refusal_of, _same)

    def delete(self, key: ShareKey) -> Deferred[Refusal | None]:
        """Delete the state."""
        return self._ask(key, messages.delete_request(key), _refusal_of, _same)

    def summary(self, key: ShareKey, leader_epoch: int = -1) -> Deferred[ShareSummary | Refusal]:
        """Return the summary of the state."""
        return self._ask(key, messages.summary_request(key, leader_epoch), _summary_of, _same)

    # --- Inside ---

    def _ask(
        self,
        key: ShareKey,
        request: StateRequest,
        read: Callable[[Message], Result],
        refuse: Callable[[Refusal], Result],
    ) -> Deferred[Result]:
        result: Deferred[Result] = Deferred()

        def answered(answer: Message | PenstockError) -> None:
            if isinstance(answer, PenstockError):
                result.set(refuse(Refusal(code_of(answer), message_of(answer))))
            else:
                result.set(read(answer))

        count = self._coordinators.partition_count("share")
        if count == 0:
            self._tasks.start(self._create_and_send(key, request, answered))
        else:
            self._send(key_partition(key_text(key), count), request, answered)
        return result

    def _send(
        self,
        partition: int,
        request: StateRequest,
        answered: Callable[[Message | PenstockError], None],
    ) -> None:
        leader = self._coordinators.leader_elsewhere("share", partition)
        if leader is None or self._peers is None:
            asked = Asked(request, _VERSION, "", "")
            self._coordinators.submit_asked("share", partition, asked).then(answered)
        else:
            self._tasks.start(self._send_to(self._peers, leader, request, answered))

    @staticmethod
    async def _send_to(
        peers: StatePeers,
        leader: int,
        request: StateRequest,
        answered: Callable[[Message | PenstockError], None],
    ) -> None:
        answer = await peers.share_state(leader, request)
        if isinstance(answer, PenstockError):
            # Its coordinator may have changed the state: the caller must read it, or retry.
            answer = CoordinatorNotAvailableError(
                f"the share coordinator on broker {leader} does not answer: {answer}"
            )
        answered(answer)

    async def _create_and_send(
        self,
        key: ShareKey,
        request: StateRequest,
        answered: Callable[[Message | PenstockError], None],
    ) -> None:
        error = await self._coordinators.ensure_topic("share")
        count = self._coordinators.partition_count("share")
        if error is not None:
            answered(error)
        elif count == 0:
            answered(CoordinatorNotAvailableError(f"{TOPICS['share']} is not known yet"))
        else:
            self._send(key_partition(key_text(key), count), request, answered)


def _same(refusal: Refusal) -> Refusal:
    return refusal


def _refusal_of(answer: Message) -> Refusal | None:
    assert isinstance(answer, messages.ChangeResponse), answer
    return messages.refusal_of(answer)


def _state_of(answer: Message) -> ShareState | Refusal:
    assert isinstance(answer, ReadShareGroupStateResponse), answer
    return messages.state_of(answer)


def _summary_of(answer: Message) -> ShareSummary | Refusal:
    assert isinstance(answer, ReadShareGroupStateSummaryResponse), answer
    return messages.summary_of(answer)
