"""`NodeQueueMember`: `edge.push.queue_ports.QueueMember`, a member of a share group.

It joins, stays and leaves by the handler of ShareGroupHeartbeat and acquires records by that of
ShareFetch, so checks, access rules and bounds are those of Kafka clients. Acknowledgements go to
the share-partitions directly. Guarantees:

- a member acquires records of each partition of its topic that this broker leads, and never more
  than it was asked for;
- one acknowledgement that is refused, because its lock expired, does not refuse others;
- `leave` releases the records of the member at once, also if the coordinator does not answer;
- an error that may pass is retried with pauses; others are reported to `lost` once.

It decides nothing about records: the share group does.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import UUID, uuid4

from penstock.broker.answers import Answer, WaitingAnswer
from penstock.broker.context import RequestContext
from penstock.broker.handlers import share_fetch
from penstock.broker.pieces import settled
from penstock.broker.share_sessions.share_ports import ShareGroups
from penstock.broker.share_sessions.share_session_table import EPOCH_MAX, SharePartitionId
from penstock.coordinator.shares.delivery.acknowledgement import GAP, Acknowledged
from penstock.coordinator.shares.ports import Refusal as ShareRefusal
from penstock.core.cancellation import Cancellation
from penstock.core.deferred import Deferred
from penstock.edge.push.queue_ports import AcquiredRead, Fetched, Share, Stored
from penstock.edge.push.reactions import OpenedTopic, Settled
from penstock.edge.push.record_runs import LogRead
from penstock.node.push.push_refusals import refused
from penstock.node.push.queue_heartbeats import QueueHeartbeats
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from penstock.protocol.push.payloads import Refusal
from penstock.replication.hosted_partition import HostedPartition

logger = logging.getLogger(__name__)

FETCH_WAIT_MS: Final = 30_000
"""A fetch without records ends after this time; new partitions are then noticed."""
RECORD_LIMIT: Final = 1
"""`share_acquire_mode`: never more records than asked for."""
SHARE_FETCH_VERSION: Final = 2
RETRY_SECONDS: Final = 0.1
RETRIES_MAX: Final = 100
"""Fetches in a row that fail, before the subscription ends: 10 s."""
EARLY_SECONDS: Final = 0.05
"""A fetch without records that ends sooner had no room to wait: the next one is delayed."""
_FINAL: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
)
_SPLIT: Final = (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)
"""One offset of an acknowledgement is not acquired any more; the others may be."""
_LOST_SESSION: Final = (
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
)

DEFECT_CODE: Final = ErrorCode.UNKNOWN_SERVER_ERROR
_NOT_LED: Final = ShareRefusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader has changed")

HostedOf = Callable[[int], HostedPartition | None]
ContextOf = Callable[[ApiKey, int], RequestContext]
PartitionsHere = Callable[[], frozenset[int]]


class NodeQueueMember:
    """One member of a share group, for one subscription."""

    def __init__(
        self,
        group: str,
        topic_id: UUID,
        topic: OpenedTopic,
        groups: ShareGroups,
        context_of: ContextOf,
        partitions_here: PartitionsHere,
        may_read: Callable[[], bool],
        lost: Callable[[Refusal], None],
    ) -> None:
        self.topic = topic
        self._group = group
        self._topic_id = topic_id
        self._groups = groups
        self._context_of = context_of
        self._partitions_here = partitions_here
        self._may_read = may_read
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self.id = str(uuid4())
        self.heartbeats: QueueHeartbeats | None = None
        self._client = Cancellation()
        """Cancelled by `leave`: the share session closes, and its records are released."""
        self._epoch = 0
        self._named: frozenset[int] = frozenset()
        """Partitions of the share session."""
        self._answer: Deferred[Answer] | None = None
        self._asked: tuple[int, int, Fetched] | None = None
        self._began_at = 0.0
        self._failures = 0
        self._timer: asyncio.TimerHandle | None = None
        self._has_left = False

    async def open(self, hosted_of: HostedOf) -> None:
        """Open the share session and load the positions; raise `PushRefusedError`.

        A group without positions starts at the end of the topic: records that are published after
        the answer to SUBSCRIBE must be delivered.
        """
        found = self._ask(0, 0)
        answer = await settled(found)
        code = answer.error_code if isinstance(answer, ShareFetchResponse) else DEFECT_CODE
        if code is not ErrorCode.NONE:
            raise refused(code, f"the share group {self._group} has no session here: {code.name}")
        for partition in sorted(self._named):
            for left in reversed(range(RETRIES_MAX)):
                hosted = hosted_of(partition)
                problem = _NOT_LED if hosted is None else await self._loaded(partition, hosted)
                if problem is None:
                    break
                if not left or problem.error_code in _FINAL:
                    why = problem.message or problem.error_code.name
                    raise refused(
                        problem.error_code, f"the share group {self._group} is not ready: {why}"
                    )
                await asyncio.sleep(RETRY_SECONDS)

    async def _loaded(self, partition: int, hosted: HostedPartition) -> ShareRefusal | None:
        """Return why a share-partition cannot be loaded; None when it is loaded."""
        live = self._groups.open(self._group, SharePartitionId(self._topic_id, partition), hosted)
        is_loaded = asyncio.Event()
        live.when_loaded(is_loaded.set)
        await is_loaded.wait()
        return live.problem

    # --- Fetch ---

    def fetch(self, records_max: int, bytes_max: int, done: Fetched) -> None:
        """Acquire records as soon as there are some; one call at a time."""
        assert self._asked is None, "one fetch at a time"
        self._asked = records_max, bytes_max, done
        self._send()

    def _send(self) -> None:
        self._timer = None
        if self._asked is None or self._has_left:
            return
        records_max, bytes_max, _ = self._asked
        self._began_at = self._loop.time()
        answer = self._ask(records_max, bytes_max)
        if not self._named:
            self._end(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker leads no partition of it")
        elif isinstance(answer, Deferred):
            self._answer = answer
            answer.then(lambda found: self._answered(answer, found))
        else:
            self._handle(answer)

    def _ask(self, records_max: int, bytes_max: int) -> Answer | Deferred[Answer]:
        here = self._partitions_here()
        new, gone = here - self._named, self._named - here
        self._named, epoch = here, self._epoch
        self._epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self.id,
            share_session_epoch=epoch,
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=bytes_max,
            max_records=records_max,
            batch_size=records_max,
            share_acquire_mode=RECORD_LIMIT,
            topics=(
                FetchTopic(
                    topic_id=self._topic_id,
                    partitions=tuple(
                        FetchPartition(partition_index=one, acknowledgement_batches=())
                        for one in sorted(new)
                    ),
                ),
            )
            if new
            else (),
            forgotten_topics_data=(
                ForgottenTopic(topic_id=self._topic_id, partitions=tuple(sorted(gone))),
            )
            if gone
            else (),
        )
        context = self._context_of(ApiKey.SHARE_FETCH, SHARE_FETCH_VERSION)
        return share_fetch.handle(request, context._replace(client=self._client))

    def _answered(self, answer: Deferred[Answer], found: Answer) -> None:
        if self._answer is answer or self._answer is None:
            self._answer = None
            self._handle(found)

    def _handle(self, found: Answer) -> None:
        if self._has_left or self._asked is None:
            return
        if not isinstance(found, ShareFetchResponse):
            self._end(ErrorCode.UNKNOWN_SERVER_ERROR, "the fetch failed by a defect")
        elif found.error_code in _LOST_SESSION:
            self._epoch, self._named = 0, frozenset()
            self._retry(found.error_code, found.error_message)
        elif found.error_code is not ErrorCode.NONE:
            self._retry(found.error_code, found.error_message)
        else:
            self._handle_rows([row for one in found.responses for row in one.partitions])

    def _handle_rows(self, rows: Sequence[PartitionData]) -> None:
        reads = [self._read(row) for row in rows if row.acquired_records]
        wrong = next((row for row in rows if row.error_code is not ErrorCode.NONE), None)
        if reads:
            self._failures = 0
            self._finish(reads)
        elif wrong is not None:
            self._retry(wrong.error_code, wrong.error_message)
        elif self._loop.time() < self._began_at + EARLY_SECONDS:
            self._timer = self._loop.call_later(RETRY_SECONDS, self._send)
        else:
            self._failures = 0
            self._finish([])

    def _read(self, row: PartitionData) -> AcquiredRead:
        records = memoryview(row.records or b"")
        live = self._groups.find(self._group, SharePartitionId(self._topic_id, row.partition_index))
        epoch, cuts = 0, 0
        if live is not None:
            epoch, cuts = live.hosted.state.leader_epoch, live.hosted.log.truncations
        read = LogRead(
            row.partition_index,
            int.from_bytes(bytes(records[:8]), "big"),
            records,
            (),
            (self._topic_id.bytes, epoch, cuts),
        )
        return AcquiredRead(
            read,
            [
                Share(one.first_offset, one.last_offset, one.delivery_count)
                for one in row.acquired_records
            ],
        )

    def _finish(self, reads: Sequence[AcquiredRead]) -> None:
        assert self._asked is not None
        (_, _, done), self._asked = self._asked, None
        done(reads)

    def _retry(self, code: ErrorCode, message: str | None) -> None:
        self._failures += 1
        if code in _FINAL or self._failures > RETRIES_MAX:
            self._end(code, message or code.name)
        else:
            self._timer = self._loop.call_later(RETRY_SECONDS, self._send)

    def _end(self, code: ErrorCode, why: str) -> None:
        assert self._asked is not None
        (_, _, done), self._asked = self._asked, None
        error = f"the share group {self._group} delivers no records here: {why}"
        done(Refusal(error=error, code=code.name, retriable=code.retriable))

    # --- Acknowledge ---

    def acknowledge(self, settled: Sequence[Settled], done: Stored) -> None:
        """Acknowledge records; `done` gets each of them once, stored or refused."""
        by_partition: dict[int, list[Settled]] = {}
        for one in settled:
            by_partition.setdefault(one.partition, []).append(one)
        is_allowed = self._may_read()
        for partition, few in by_partition.items():
            few.sort(key=_offset)
            if is_allowed:
                self._store(partition, few, done)
            else:
                done(few, False)  # noqa: FBT003 (a callback)

    def _store(self, partition: int, few: Sequence[Settled], done: Stored) -> None:
        live = self._groups.find(self._group, SharePartitionId(self._topic_id, partition))
        if live is None:
            done(few, False)  # noqa: FBT003 (a callback)
            return

        def stored(refusal: ShareRefusal | None) -> None:
            if refusal is None:
                done(few, True)  # noqa: FBT003 (a callback)
            elif refusal.error_code in _SPLIT and len(few) > 1:
                middle = len(few) // 2
                self._store(partition, few[:middle], done)
                self._store(partition, few[middle:], done)
            else:
                logger.debug("an acknowledgement of %s was refused: %s", self._group, refusal)
                done(few, False)  # noqa: FBT003 (a callback)

        live.acknowledge(self.id, _runs(few)).then(stored)

    def skip(self, partition: int, first: int, last: int) -> None:
        """Acknowledge offsets that the log has no records for."""
        live = self._groups.find(self._group, SharePartitionId(self._topic_id, partition))
        if live is not None:
            live.acknowledge(self.id, (Acknowledged(first, last, (GAP,)),))

    # --- End ---

    def leave(self) -> None:
        """Leave the group; records in flight are released."""
        if self._has_left:
            return
        self._has_left = True
        self._asked = None
        if self._timer is not None:
            self._timer.cancel()
        answer, self._answer = self._answer, None
        if isinstance(answer, WaitingAnswer):
            answer.waiter.abandon()
        self._client.cancel()
        if self.heartbeats is not None:
            self.heartbeats.leave()

    def report_lost(self, refusal: Refusal) -> None:
        """The group does not accept this member any more."""
        if not self._has_left:
            self._lost(refusal)


def _offset(one: Settled) -> int:
    return one.offset


def _runs(few: Iterable[Settled]) -> list[Acknowledged]:
    """Return the acknowledgements as runs of offsets with one type."""
    runs: list[Acknowledged] = []
    for one in few:
        last = runs[-1] if runs else None
        if last is not None and last.last + 1 == one.offset and last.types == (one.kind,):
            runs[-1] = Acknowledged(last.first, one.offset, last.types)
        else:
            runs.append(Acknowledged(one.offset, one.offset, (one.kind,)))
    return runs
