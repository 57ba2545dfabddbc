"""Carries out the effects of transaction shards: markers in partitions, and new producer ids.

All markers of a transaction are appended in one step and then awaited together. A marker counts as
written when it is committed. It is not written again when the markers of other partitions are
retried. No other coordinator's epoch fences them: this broker leads the partition of the
transaction's state, so it is the only coordinator. It does NOT decide the outcome of a transaction,
or when to retry.
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
from penstock.core.errors import InvalidProducerEpochError, NotLeaderError, PenstockError
from penstock.core.types import TopicPartition
from penstock.replication.manager import ReplicaManager, TransactionEnd

logger = logging.getLogger(__name__)

STRICT_TRANSACTION_VERSION: Final = 2
"""Starting at this version, each end of a transaction has its own epoch."""


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
    ) -> None:
        self._replicas = replicas
        self._producer_ids = producer_ids
        self._clock = clock
        self._marker_written = marker_written
        self._image = image
        self._unfinished: dict[WriteMarkers, set[TopicPartition]] = {}
        """Ends that are not complete, with the partitions that have their marker. An entry is
        removed when an attempt succeeds: a later transaction may end with an equal effect, and its
        markers must not count as written."""

    async def perform(self, effect: object) -> object:
        """Carry out an effect; raise a `PenstockError` if it fails."""
        match effect:
            case NextProducerId():
                return await self._producer_ids.next_id()
            case WriteMarkers():
                await self._write_markers(effect)
                return None
        raise AssertionError(f"unknown effect {effect!r}")

    async def _write_markers(self, effect: WriteMarkers) -> None:
        end = TransactionEnd(
            producer_id=effect.producer_id,
            producer_epoch=effect.producer_epoch,
            coordinator_epoch=effect.coordinator_epoch,
            commits=effect.commits,
            is_strict=effect.transaction_version >= STRICT_TRANSACTION_VERSION,
        )
        is_first = effect not in self._unfinished
        written = self._unfinished.setdefault(effect, set())
        answers = [
            (name, self._append(name, end)) for name in effect.partitions if name not in written
        ]
        failed: PenstockError | None = None
        for name, answer in answers:
            error = await _result(answer)
            if error is None or isinstance(error, InvalidProducerEpochError):
                # A later epoch has ended the transaction there, if it ever reached the partition.
                written.add(name)
                continue
            if is_first:
                # Logged once, not with every attempt.
                logger.warning("no marker in %s yet, will be tried again: %s", name, error)
            failed = error
        if failed is not None:
            raise failed
        self._unfinished.pop(effect, None)

    def _append(self, name: TopicPartition, end: TransactionEnd) -> Deferred[PenstockError | None]:
        partition = self._replicas.find(name.topic, name.partition)
        if partition is None:
            answer: Deferred[PenstockError | None] = Deferred()
            is_known = self._image().partition(name.topic, name.partition) is not None
            # A deleted partition needs no marker.
            answer.set(NotLeaderError(f"{name} is not served now") if is_known else None)
            return answer

        known = partition.log.producers.entries.get(end.producer_id)
        if known is not None and known.coordinator_epoch > end.coordinator_epoch:
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
