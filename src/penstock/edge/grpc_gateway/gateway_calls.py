"""`GatewayCalls`: Produce, Fetch, GetTopicMetadata and CommitOffset on a broker.

Guarantees:

- a Produce is answered when its records are on disk, as a producer with acks=all; records are
  appended in the order of the request for each partition;
- a Fetch returns the records that a consumer with `read_committed` sees, in the order of offsets,
  and `next_offset` is behind the last one returned and behind invisible ones;
- an empty partition is parked in the step that found it empty, so no append can fall in between;
- the answer to a client above its quota waits.

It knows nothing of gRPC: requests and answers are bytes. A refusal is an exception
(`PushRefusedError`, `GatewayRefusalError`, `MalformedRequestError`).
"""

import asyncio
from bisect import bisect_right
from typing import Final, Literal

from penstock.core.errors import CorruptBatchError, PenstockError
from penstock.edge.grpc_gateway.gateway_limits import (
    PARTITIONS_MAX,
    RECORDS_MAX,
    THROTTLE_SECONDS_MAX,
)
from penstock.edge.grpc_gateway.gateway_messages import (
    END,
    START,
    FetchCall,
    read_commit,
    read_fetch,
    read_produce,
    read_topics,
    write_fetch,
    write_produce,
    write_record,
    write_topics,
)
from penstock.edge.grpc_gateway.gateway_ports import GatewayBroker
from penstock.edge.grpc_gateway.gateway_statuses import (
    INVALID_ARGUMENT,
    GatewayRefusalError,
    refusal_error,
)
from penstock.edge.push.ports import Client, PartitionView
from penstock.edge.push.publishing import Outcome, publish_all
from penstock.edge.push.reactions import Published
from penstock.edge.push.record_runs import LogRead, batch_run, is_heavy, record_run
from penstock.protocol.push.data import DATA_BYTES_MIN, NO_PARTITION, decode_data
from penstock.protocol.push.payloads import Refusal, SubscribeRequest

RETRY_SECONDS: Final = 0.1
"""When a wait is tried again that the broker had no room for."""
_NO_SUBSCRIPTION: Final = b"\0\0"


class _Publisher:
    """`edge.push.publishing.Publisher` of one call."""

    def __init__(self, client: Client, turn: int, count: int) -> None:
        self.client = client
        self.next_partition = turn
        self._left = count
        self.outcomes: dict[int, Outcome] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def publishes_done(self, outcomes: list[tuple[int, Outcome]]) -> None:
        """Records are on disk, or were refused."""
        self.outcomes.update(outcomes)
        self._left -= len(outcomes)
        if not self._left and not self.done.done():
            self.done.set_result(None)


class GatewayCalls:
    """The calls of all clients."""

    def __init__(self, broker: GatewayBroker) -> None:
        self._broker = broker
        self._turn = 0

    # --- Produce ---

    async def produce(self, client: Client, message: bytes) -> bytes:
        """Append records; return their places."""
        call = read_produce(message)
        topic = await self._broker.open(client, SubscribeRequest(topic=call.topic, publish=True))
        for place, (data, size) in enumerate(call.records):
            if data.partition != NO_PARTITION and data.partition >= topic.partition_count:
                raise refusal_error(
                    Refusal(
                        error=f"{call.topic} has {topic.partition_count} partitions, and the "
                        f"request names partition {data.partition}",
                        code="UNKNOWN_TOPIC_OR_PARTITION",
                    )
                )
            if size > topic.message_bytes_max:
                raise refusal_error(
                    Refusal(
                        error=f"record {place} has {size} bytes, the limit of {call.topic} is "
                        f"{topic.message_bytes_max - DATA_BYTES_MIN}",
                        code="MESSAGE_TOO_LARGE",
                    )
                )
        wait_seconds = self._broker.produce_wait_seconds(client, len(message))
        self._turn += 1
        publisher = _Publisher(client, self._turn, len(call.records))
        records = [
            Published(place, call.topic, data, size, topic.partition_count)
            for place, (data, size) in enumerate(call.records)
        ]
        publish_all(publisher, self._broker, records)
        await publisher.done
        await _throttle(wait_seconds)
        return _placed(publisher.outcomes, records)

    # --- Fetch ---

    async def fetch(self, client: Client, message: bytes, left_seconds: float) -> bytes:
        """Return records of one partition, in at most `left_seconds`."""
        call = read_fetch(message)
        offset = await self._position(client, call)
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + min(call.wait_ms_max / 1000, left_seconds)
        while True:
            view = self._view(client, call)
            if offset < view.end_offset:
                answer = await self._read(call, offset, view)
                await _throttle(self._broker.fetch_wait_seconds(client, len(answer)))
                return answer
            left = ends_at - loop.time()
            if left <= 0:
                return write_fetch((), b"", offset, view.start_offset, view.end_offset)
            await self._wait_for_news(call, left)

    async def _position(self, client: Client, call: FetchCall) -> int:
        """Check access, and return where to start."""
        group = call.group or None
        request = SubscribeRequest(topic=call.topic, group=group, mode="fanout", start="committed")
        if call.offset is not None:
            at: Literal["earliest", "latest"] = "earliest" if call.offset == START else "latest"
            request = SubscribeRequest(topic=call.topic, mode="fanout", start=at)
        opened = await self._broker.open(client, request)
        if call.offset is None and call.partition in opened.uncommitted:
            # Not the end of the log: records between two calls would be skipped.
            raise refusal_error(
                Refusal(
                    error=f"group {call.group} has no committed offset of "
                    f"{call.topic}-{call.partition}; start with offset -2 or -1, and commit",
                    code="OFFSET_OUT_OF_RANGE",
                )
            )
        found = opened.positions.get(call.partition)
        if found is not None:
            return found if call.offset in (None, START, END) else self._given(client, call)
        leader = opened.elsewhere.get(call.partition)
        if leader is None:
            raise refusal_error(
                Refusal(
                    error=f"{call.topic} has {opened.partition_count} partitions, and the request "
                    f"names partition {call.partition}",
                    code="UNKNOWN_TOPIC_OR_PARTITION",
                )
            )
        raise refusal_error(
            Refusal(
                error=f"broker {leader} leads {call.topic}-{call.partition}; call that one",
                code="NOT_LEADER_OR_FOLLOWER",
                retriable=True,
            )
        )

    def _given(self, client: Client, call: FetchCall) -> int:
        """Return the offset that a call names, if the partition has it."""
        view, offset = self._view(client, call), call.offset
        assert offset is not None
        if view.start_offset <= offset <= view.end_offset:
            return offset
        raise refusal_error(
            Refusal(
                error=f"the request names offset {offset} of {call.topic}-{call.partition}, which "
                f"has {view.start_offset} to {view.end_offset}",
                code="OFFSET_OUT_OF_RANGE",
            )
        )

    def _view(self, client: Client, call: FetchCall) -> PartitionView:
        if not self._broker.may_read(client, call.topic):
            raise refusal_error(
                Refusal(
                    error=f"READ on the topic {call.topic} is denied",
                    code="TOPIC_AUTHORIZATION_FAILED",
                )
            )
        try:
            return self._broker.view(call.topic, call.partition)
        except PenstockError as error:
            raise refusal_error(
                Refusal(error=str(error), code="NOT_LEADER_OR_FOLLOWER", retriable=True)
            ) from None

    async def _read(self, call: FetchCall, offset: int, view: PartitionView) -> bytes:
        broker, place = self._broker, (call.topic, call.partition)
        try:
            try:
                read = broker.read(*place, offset, call.bytes_max)
            except BlockingIOError:
                read = await broker.read_cold(*place, offset, call.bytes_max)

            def encode() -> bytes:
                return _encode(call, offset, read, view)

            if call.as_batches or not is_heavy(read):
                return encode()
            return await broker.run_heavy(encode, len(read.records))
        except CorruptBatchError as error:
            raise refusal_error(Refusal(error=str(error), code="KAFKA_STORAGE_ERROR")) from None

    async def _wait_for_news(self, call: FetchCall, seconds: float) -> None:
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_news() -> None:
            if not news.done():
                news.set_result(None)

        cancel = self._broker.wait(call.topic, call.partition, on_news)
        if cancel is None:
            if not news.done():
                await asyncio.sleep(min(RETRY_SECONDS, seconds))
            return
        try:
            await asyncio.wait((news,), timeout=seconds)
        finally:
            cancel()

    # --- The others ---

    async def get_topic_metadata(self, client: Client, message: bytes) -> bytes:
        """Return the state of topics."""
        found = self._broker.topic_states(client, read_topics(message))
        count = sum(len(one.partitions) for one in found)
        if count > PARTITIONS_MAX:
            raise GatewayRefusalError(
                INVALID_ARGUMENT,
                f"the topics have {count} partitions, the limit of an answer is {PARTITIONS_MAX}; "
                "name fewer topics",
            )
        return write_topics(found)

    async def commit_offset(self, client: Client, message: bytes) -> bytes:
        """Commit offsets of a group."""
        call = read_commit(message)
        await self._broker.commit(client, call.group, call.topic, call.offsets)
        return b""


async def _throttle(wait_seconds: float) -> None:
    if wait_seconds > 0:
        await asyncio.sleep(min(wait_seconds, THROTTLE_SECONDS_MAX))


def _placed(outcomes: dict[int, Outcome], records: list[Published]) -> bytes:
    """Return the answer to a Produce; raise the first refusal if no record was stored."""
    partitions: list[int] = []
    offsets: list[int] = []
    refused: list[tuple[int, Refusal]] = []
    for place in range(len(records)):
        outcome = outcomes[place]
        if isinstance(outcome, Refusal):
            partitions.append(-1)
            offsets.append(-1)
            if not any(one is outcome for _, one in refused):
                refused.append((records[place].data.partition, outcome))
        else:
            partitions.append(outcome[0])
            offsets.append(outcome[1])
    if refused and max(offsets) < 0:
        raise refusal_error(refused[0][1])
    return write_produce(partitions, offsets, refused)


def _encode(call: FetchCall, offset: int, read: LogRead, view: PartitionView) -> bytes:
    """Return the answer with the records of a read that the bounds of the call allow."""
    run = batch_run(read) if call.as_batches else record_run(read)
    write = _batch if call.as_batches else _record
    found: list[bytes] = []
    next_offset, left = run.next_offset, call.bytes_max
    # A batch may start before the offset: its first records were read before.
    for place in range(bisect_right(run.nexts, offset), len(run.nexts)):
        part = write(run.tails[place])
        left -= len(part)
        if found and (left < 0 or len(found) >= RECORDS_MAX):
            next_offset = run.nexts[place - 1]
            break
        found.append(part)
    batches = b"".join(found) if call.as_batches else b""
    records = () if call.as_batches else found
    return write_fetch(
        records, batches, max(offset, next_offset), view.start_offset, view.end_offset
    )


def _batch(tail: bytes) -> bytes:
    return decode_data(_NO_SUBSCRIPTION + tail).value or b""


def _record(tail: bytes) -> bytes:
    return write_record(decode_data(_NO_SUBSCRIPTION + tail))
