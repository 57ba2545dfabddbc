"""Carries out the effects of transaction shards: markers in partitions, and new producer ids.

All markers of a transaction in partitions of this broker are appended in one step; the others are
sent to the leaders that the newest image shows. Then all are awaited together. A marker counts as
written when it is committed. It is not written again when the markers of other partitions are
retried. It does NOT decide the outcome of a transaction, or when to retry.

A broker that is alone is the only coordinator, so no other coordinator's epoch fences its markers.
In a cluster a higher epoch does: it is that of the next coordinator, and this broker was deposed.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from penstock.broker.ports import ProducerIds
from penstock.cluster.image import MetadataImage
from penstock.coordinator.transactions.effects import NextProducerId, WriteMarkers
from penstock.core.clock import Clock
from penstock.core.deferred import Deferred
from penstock.core.errors import (
    BrokerAnswerError,
    InvalidProducerEpochError,
    NotLeaderError,
    PenstockError,
)
from penstock.core.types import TopicPartition
from penstock.node.coordination.other_brokers import EndOf, OtherBrokers
from penstock.protocol.error_codes import ErrorCode
from penstock.replication.manager import ReplicaManager, TransactionEnd

logger = logging.getLogger(__name__)

STRICT_TRANSACTION_VERSION: Final = 2
"""Starting at this version, each end of a transaction has its own epoch."""


_WRITTEN: Final = (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
"""Codes of a partition that needs no marker any more: a later epoch has ended the transaction."""


LATE_ATTEMPT: Final = 100
"""The attempt, after about 10 seconds, whose failure is logged in a cluster. Leaders change there
in normal operation, and each change fails the first attempts of many transactions."""


class _Unfinished:
    """The end of one transaction that is not complete."""

    __slots__ = ("attempts", "written")

    def __init__(self) -> None:
        self.attempts = 0
        self.written: set[TopicPartition] = set()
        """The partitions that have their marker."""


class MarkerWritten(Protocol):
    """Called for each marker, in the step in which it is appended."""

    def __call__(
        self, name: TopicPartition, producer_id: int, producer_epoch: int, *, commits: bool
    ) -> None:
        """Handle an appended marker."""
        ...


class TransactionEffects:
    """`coordinator.ports.Effects` of transaction shards."""

    def __init__(
        self,
        replicas: ReplicaManager,
        producer_ids: ProducerIds,
        clock: Clock,
        marker_written: MarkerWritten,
        image: Callable[[], MetadataImage],
        peers: OtherBrokers | None = None,
    ) -> None:
        """`peers` are the other brokers of the cluster; None for a broker that is alone."""
        self._replicas = replicas
        self._peers = peers
        self._producer_ids = producer_ids
        self._clock = clock
        self._marker_written = marker_written
        self._image = image
        self._unfinished: dict[WriteMarkers, _Unfinished] = {}
        """Ends that are not complete. An entry is removed when an attempt succeeds: a later
        transaction may end with an equal effect, and its markers must not count as written."""

    async def perform(self, effect: object) -> object:
        """Carry out an effect; raise a `PenstockError` if it fails."""
        match effect:
            case NextProducerId():
                return await self._producer_ids.next_id()
            case WriteMarkers():
                await self._write_markers(effect)
                return None
        raise AssertionError(f"unknown effect {effect!r}")

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Forget the ends of transactional ids that this broker does not coordinate any more."""
        for effect in tuple(self._unfinished):
            if is_gone(effect.transactional_id):
                del self._unfinished[effect]

    async def _write_markers(self, effect: WriteMarkers) -> None:
        end = TransactionEnd(
            producer_id=effect.producer_id,
            producer_epoch=effect.producer_epoch,
            coordinator_epoch=effect.coordinator_epoch,
            commits=effect.commits,
            is_strict=effect.transaction_version >= STRICT_TRANSACTION_VERSION,
        )
        unfinished = self._unfinished.get(effect)
        if unfinished is None:
            unfinished = self._unfinished[effect] = _Unfinished()
        unfinished.attempts += 1
        written = unfinished.written
        missing = [name for name in effect.partitions if name not in written]
        led_elsewhere = {} if self._peers is None else self._leaders(missing, self._peers.own_id)
        answers = [(name, self._append(name, end)) for name in missing if name not in led_elsewhere]
        errors = await self._send(effect, led_elsewhere)
        for name, answer in answers:
            errors[name] = await _result(answer)
        failed: PenstockError | None = None
        for name, error in errors.items():
            if error is None or isinstance(error, InvalidProducerEpochError):
                # A later epoch has ended the transaction there, if it ever reached the partition.
                written.add(name)
                continue
            if unfinished.attempts == (1 if self._peers is None else LATE_ATTEMPT):
                # Logged once, not with every attempt.
                logger.warning("no marker in %s yet, will be tried again: %s", name, error)
            failed = error
        if failed is not None:
            raise failed
        self._unfinished.pop(effect, None)

    # --- Partitions of other brokers ---

    def _leaders(self, names: list[TopicPartition], own_id: int) -> dict[TopicPartition, int]:
        """Return the leader of each partition that another broker leads."""
        found: dict[TopicPartition, int] = {}
        image = self._image()
        for name in names:
            partition = self._replicas.find(name.topic, name.partition)
            if partition is not None and partition.state.is_leader:
                continue
            at = image.partition(name.topic, name.partition)
            if at is not None and at.leader not in (own_id, -1):
                found[name] = at.leader
        return found

    async def _send(
        self, effect: WriteMarkers, leaders: dict[TopicPartition, int]
    ) -> dict[TopicPartition, PenstockError | None]:
        """Send the markers to the leaders; return the error of each partition."""
        if not leaders:
            return {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for name, leader in leaders.items():
            by_leader.setdefault(leader, []).append(name)
        results = await asyncio.gather(
            *(self._send_to(leader, effect, names) for leader, names in by_leader.items())
        )
        return {name: error for errors in results for name, error in errors.items()}

    async def _send_to(
        self, leader: int, effect: WriteMarkers, names: list[TopicPartition]
    ) -> dict[TopicPartition, PenstockError | None]:
        assert self._peers is not None
        end = EndOf(
            effect.producer_id,
            effect.producer_epoch,
            effect.coordinator_epoch,
            effect.commits,
            effect.transaction_version,
            tuple(names),
        )
        codes = await self._peers.write_markers(leader, end)
        if isinstance(codes, PenstockError):
            return dict.fromkeys(names, codes)
        return {
            name: self._error_of(name, codes.get(name, ErrorCode.UNKNOWN_SERVER_ERROR), leader)
            for name in names
        }

    def _error_of(self, name: TopicPartition, code: ErrorCode, leader: int) -> PenstockError | None:
        """Return the error of a marker that another broker answered with a code."""
        if code in _WRITTEN:
            return None
        if self._image().partition(name.topic, name.partition) is None:
            # It was deleted. The leader's answer alone does not show that: its image may be older.
            return None
        return BrokerAnswerError(code.value, code.name, f"broker {leader}")

    # --- Partitions of this broker ---

    def _append(self, name: TopicPartition, end: TransactionEnd) -> Deferred[PenstockError | None]:
        partition = self._replicas.find(name.topic, name.partition)
        if partition is None or not partition.state.is_leader:
            answer: Deferred[PenstockError | None] = Deferred()
            is_known = self._image().partition(name.topic, name.partition) is not None
            # A deleted partition needs no marker.
            answer.set(NotLeaderError(f"{name} is not served now") if is_known else None)
            return answer

        known = partition.log.producers.entries.get(end.producer_id)
        is_alone = self._peers is None
        if is_alone and known is not None and known.coordinator_epoch > end.coordinator_epoch:
            # The epoch is from a client, which may send any epoch, or from the log's former
            # cluster.
            end = end._replace(coordinator_epoch=known.coordinator_epoch)

        def appended() -> None:
            self._marker_written(name, end.producer_id, end.producer_epoch, commits=end.commits)

        return self._replicas.append_marker(
            partition, end, self._clock.now_ms(), on_appended=appended
        )


async def _result(answer: Deferred[PenstockError | None]) -> PenstockError | None:
    future: asyncio.Future[PenstockError | None] = asyncio.get_running_loop().create_future()

    def done(error: PenstockError | None) -> None:
        if not future.done():
            future.set_result(error)

    answer.then(done)
    return await future
