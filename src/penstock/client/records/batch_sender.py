"""`BatchSender`: appends finished record batches, several requests in flight, each batch once.

Guarantees, with acks=all and batches that carry a producer's numbers: when `flush` returns, every
batch is in its partition exactly once, in the order of `send` for that partition. A request whose
answer was lost is sent again, and the broker recognizes batches that it has. At most
`REQUESTS_IN_FLIGHT_MAX` requests are in flight to a leader, because a broker remembers that number
of batches of a producer. When a request fails, the sender first waits for all requests in flight,
and then sends the failed batches again in order. So a later batch never overtakes an earlier one.

With acks=1, batches whose answer was lost are sent again and may be stored twice. With acks=0 the
outcome is unknown. Memory is bounded by `UNANSWERED_BYTES_MAX` and the size of one request.

It does not number or encode batches: an encoder does. It belongs to one thread, which waits for the
network; there is no timer and no thread of its own.
"""

import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

from penstock.client import calls
from penstock.client.cluster import Cluster
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call
from penstock.client.transport.pool import Started
from penstock.client.transport.retries import Pauses
from penstock.core.errors import BrokerAnswerError, ClientError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.produce import PartitionProduceResponse

ACKS_ALL: Final = -1
REQUESTS_IN_FLIGHT_MAX: Final = 5
"""Limit for each leader; Kafka's bound for idempotent producers."""
REQUEST_BYTES_WANTED: Final = 262_144
"""A request is sent when this number of bytes waits for its leader: then its own cost does not
matter."""
REQUEST_BYTES_MAX: Final = 4_194_304
"""Many partitions fit into one request; a larger request delays the answers of its neighbours."""
UNANSWERED_BYTES_MAX: Final = 33_554_432
"""Kafka's buffer.memory: bytes in flight to all leaders."""
EXPLICIT_ADD_PRODUCE_VERSION_MAX: Final = 11
"""Starting at version 12, Produce adds partitions to transactions (version 2 of that protocol)."""

_STORED: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
"""A duplicate is a batch of this sender that was appended before its answer was lost."""


class BatchRefusedError(BrokerAnswerError):
    """A broker permanently rejects a batch."""

    def __init__(self, at: TopicPartition, code: ErrorCode, message: str, batch_bytes: int) -> None:
        super().__init__(code.value, code.name, f"{at}: {message}" if message else str(at))
        self.at = at
        self.batch_bytes = batch_bytes


@dataclass(frozen=True, slots=True)
class _Batch:
    at: TopicPartition
    data: bytearray | bytes
    number: int
    """The position of the batch in this sender's order."""


@dataclass(slots=True)
class _Request:
    batches: dict[TopicPartition, _Batch]
    size_bytes: int
    started: Started[dict[TopicPartition, PartitionProduceResponse]]


class BatchSender:
    """Sends batches to the leaders of their partitions."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = ACKS_ALL,
        transactional_id: str | None = None,
        join: Callable[[Collection[TopicPartition]], None] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`join` gets new partitions before their first batch is sent (transaction version 0).

        Without it a transaction is of version 2.
        """
        self._cluster = cluster
        self._acks = acks
        self._transactional_id = transactional_id
        self._join = join
        self._joined: set[TopicPartition] = set()
        self._sleep = sleep
        self._waiting: dict[TopicPartition, deque[_Batch]] = {}
        self._waiting_bytes = 0
        self._under_way: dict[Address, deque[_Request]] = {}
        self._unanswered_bytes = 0
        self._again: list[_Batch] = []
        self._pauses: Pauses | None = None
        self._failure: ClientError | None = None
        self._count = 0
        self.bytes_stored = 0

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions of the batches that were sent."""
        return frozenset(self._joined)

    def send(self, at: TopicPartition, data: bytearray | bytes) -> None:
        """Send a batch now or with later batches. The caller must not change it again."""
        self._count += 1
        self._waiting.setdefault(at, deque()).append(_Batch(at, data, self._count))
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= REQUEST_BYTES_WANTED:
            self._pump(to_the_end=False)

    def flush(self) -> None:
        """Send all waiting batches, and wait until everything is stored."""
        while self._waiting or self._again or any(self._under_way.values()):
            self._pump(to_the_end=True)
            for address in list(self._under_way):
                while self._under_way.get(address):
                    self._receive(address)

    def abandon(self) -> None:
        """Discard all batches without waiting; batches in flight may be stored or not."""
        for queue in self._under_way.values():
            for request in queue:
                request.started.forget()
        self._under_way.clear()
        self._waiting.clear()
        self._again.clear()

    # --- Sending ---

    def _pump(self, *, to_the_end: bool) -> None:
        """Send requests until less than one request waits."""
        while True:
            if self._again:
                self._recover()
            if not self._waiting or (self._waiting_bytes < REQUEST_BYTES_WANTED and not to_the_end):
                return
            try:
                leaders = self._cluster.by_leader(self._waiting)
                self._join_new(self._waiting)
            except ClientError as error:
                self._give_up_or_pause(error)
                continue
            for address, partitions in leaders.items():
                self._send_to(address, partitions)

    def _join_new(self, partitions: Collection[TopicPartition]) -> None:
        new = [at for at in partitions if at not in self._joined]
        if new and self._join is not None:
            self._join(new)
        self._joined.update(new)

    def _send_to(self, address: Address, partitions: list[TopicPartition]) -> None:
        """Send one request to a leader: the next batch of each partition, up to the size limit."""
        batches: dict[TopicPartition, _Batch] = {}
        size_bytes = 0
        for at in partitions:
            batch = self._waiting[at][0]
            if batches and size_bytes + len(batch.data) > REQUEST_BYTES_MAX:
                break
            batches[at] = batch
            size_bytes += len(batch.data)
        self._make_room(address, size_bytes)
        if self._again:
            return  # failed batches are sent first
        for at in batches:
            self._take_waiting(at)
        try:
            started = self._cluster.start(address, self._call(batches))
        except ClientError as error:
            self._put_again(batches, error)
            return
        self._under_way.setdefault(address, deque()).append(_Request(batches, size_bytes, started))
        self._unanswered_bytes += size_bytes

    def _call(
        self, batches: dict[TopicPartition, _Batch]
    ) -> Call[dict[TopicPartition, PartitionProduceResponse]]:
        call = calls.send_batches(
            {at: batch.data for at, batch in batches.items()},
            acks=self._acks,
            timeout_ms=self._cluster.timeout_ms,
            transactional_id=self._transactional_id,
        )
        if self._join is None:
            return call
        return replace(call, version_max=EXPLICIT_ADD_PRODUCE_VERSION_MAX)

    def _take_waiting(self, at: TopicPartition) -> None:
        queue = self._waiting[at]
        self._waiting_bytes -= len(queue.popleft().data)
        if not queue:
            del self._waiting[at]

    # --- Answers ---

    def _make_room(self, address: Address, size_bytes: int) -> None:
        while len(self._under_way.get(address, ())) >= REQUESTS_IN_FLIGHT_MAX:
            self._receive(address)
        while self._unanswered_bytes and (
            self._unanswered_bytes + size_bytes > UNANSWERED_BYTES_MAX
        ):
            self._receive(next(one for one, queue in self._under_way.items() if queue))

    def _receive(self, address: Address) -> None:
        """Wait for the oldest answer of this leader; failed batches are kept for a retry."""
        queue = self._under_way[address]
        request = queue.popleft()
        if not queue:
            del self._under_way[address]
        self._unanswered_bytes -= request.size_bytes
        try:
            answers = request.started.result()
        except ClientError as error:
            self._put_again(request.batches, error)
            return
        if self._acks == 0:
            return
        for at, batch in request.batches.items():
            self._judge(batch, answers.get(at))

    def _judge(self, batch: _Batch, answer: PartitionProduceResponse | None) -> None:
        if answer is None:
            raise BatchRefusedError(
                batch.at, ErrorCode.UNKNOWN_SERVER_ERROR, "the answer does not name it", 0
            )
        code = answer.error_code
        if code in _STORED:
            self.bytes_stored += len(batch.data)
            self._pauses = None
            return
        is_after_failed = any(one.at == batch.at for one in self._again)
        is_gap = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and is_after_failed
        error = BatchRefusedError(batch.at, code, answer.error_message or "", len(batch.data))
        if not code.retriable and not is_gap:
            raise error
        self._put_again({batch.at: batch}, error)

    # --- Failures ---

    def _put_again(self, batches: dict[TopicPartition, _Batch], error: ClientError) -> None:
        self._again.extend(batches.values())
        if self._failure is None:
            self._failure = error

    def _recover(self) -> None:
        """Wait for all requests in flight; put failed batches before waiting ones, in order."""
        for address in list(self._under_way):
            while self._under_way.get(address):
                self._receive(address)
        for batch in sorted(self._again, key=lambda one: one.number, reverse=True):
            self._waiting.setdefault(batch.at, deque()).appendleft(batch)
            self._waiting_bytes += len(batch.data)
        self._again.clear()
        failure, self._failure = self._failure, None
        assert failure is not None
        self._give_up_or_pause(failure)

    def _give_up_or_pause(self, error: ClientError) -> None:
        """Pause before the next attempt; raise when there was no progress for too long."""
        self._cluster.forget_leaders()
        if isinstance(error, BrokerAnswerError) and not _may_come_again(error):
            raise error
        if self._pauses is None:
            self._pauses = Pauses(self._cluster.deadline_seconds)
        pause = self._pauses.next_pause(self._cluster.clock.monotonic())
        if pause is None:
            raise error
        self._sleep(pause)


def _may_come_again(error: BrokerAnswerError) -> bool:
    code = ErrorCode(error.code)
    return code.retriable or code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
