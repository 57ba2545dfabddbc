"""`Asker`: one connection to a broker, with the calls that the tests of handlers repeat.

Guarantees: a message is sent in the version that the test names, and the answer is the broker's,
decoded; nothing is retried or corrected. The same calls work against Apache Kafka, so that a test
describes both. The one difference is `create`: Kafka answers before its brokers know the topic, so
there it waits until each partition has a leader; Penstock must serve a topic when it answers.
"""

import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

from penstock.protocol.codec import Message
from penstock.protocol.connection import ClientConnection
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    create_topics,
    delete_topics,
    fetch,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from penstock.records.batch import BatchHeader, iterate_headers
from penstock.records.builder import build_batch, read_records
from penstock.records.record import Record

HOST = "127.0.0.1"
SECONDS_MAX = 20.0
"""For a machine that is busy with other things; nothing waits that long on purpose."""
TIMEOUT_MS = 10_000
NAMED = 12
"""The highest version of Produce and of Fetch that names topics."""
BY_ID = 18
"""The highest version of Fetch, which knows topics by id."""

Answer = TypeVar("Answer")
_numbers = itertools.count()


def fresh_name(stem: str = "topic") -> str:
    """A topic name that no other test uses: tests of a module share a broker."""
    return f"{stem}-{next(_numbers)}"


def batch_of(
    *values: bytes,
    timestamps_ms: Iterable[int] | None = None,
    producer_id: int = -1,
    producer_epoch: int = 0,
    sequence: int = -1,
    codec: int = 0,
    transactional: bool = False,
) -> bytes:
    """One batch, as a producer writes it; by default its records are of now."""
    now_ms = time.time_ns() // 1_000_000
    times = [now_ms] * len(values) if timestamps_ms is None else list(timestamps_ms)
    return bytes(
        build_batch(
            [
                Record(value=value, timestamp_ms=timestamp_ms)
                for value, timestamp_ms in zip(values, times, strict=True)
            ],
            producer_id=producer_id,
            producer_epoch=producer_epoch if producer_id >= 0 else -1,
            base_sequence=sequence,
            codec=codec,
            transactional=transactional,
        )
    )


def headers_in(data: fetch.PartitionData) -> list[BatchHeader]:
    """The batches in an answer; a cut one at its end is left out."""
    return [header for _, header in iterate_headers(bytes(data.records or b""))]


def values_in(data: fetch.PartitionData) -> list[bytes | None]:
    """The values of all records in an answer."""
    records = bytes(data.records or b"")
    return [
        record.value
        for position, _ in iterate_headers(records)
        for record in read_records(records, position)
    ]


class Asker:
    """One connection."""

    def __init__(
        self,
        port: int,
        *,
        is_kafka: bool = False,
        host: str = HOST,
        source: str = "",
        client_id: str | None = "asker",
    ) -> None:
        self.port = port
        self.is_kafka = is_kafka
        self._socket = socket.create_connection((host, port), SECONDS_MAX, (source, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._protocol = ClientConnection(client_id)

    # --- Messages ---

    def send(self, message: Message, version: int, *, is_answered: bool = True) -> None:
        """Send a request and do not wait."""
        _, frame = self._protocol.send_request(message, version, expects_response=is_answered)
        self._socket.sendall(b"".join(frame))

    def send_together(self, *messages: tuple[Message, int]) -> None:
        """Send requests, each with its version, so that they arrive in one piece."""
        frames = [self._protocol.send_request(*message)[1] for message in messages]
        self._socket.sendall(b"".join(part for frame in frames for part in frame))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def receive_bytes(self) -> bytes:
        """The next frame, without its length."""
        length = int.from_bytes(self._receive_exactly(4))
        return self._receive_exactly(length)

    def _receive_exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            assert part, "the broker closed the connection"
            data += part
        return bytes(data)

    def receive(self, answer_type: type[Answer]) -> Answer:
        """The next answer."""
        while True:
            response = self._protocol.next_response()
            if response is not None:
                assert isinstance(response.message, answer_type)
                return response.message
            data = self._socket.recv(1_048_576)
            assert data, "the broker closed the connection"
            self._protocol.receive_data(data)

    def ask(self, message: Message, version: int, answer_type: type[Answer]) -> Answer:
        """A request and its answer."""
        self.send(message, version)
        return self.receive(answer_type)

    def is_closed(self) -> bool:
        """Whether the broker closed the connection without another byte."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing comes for a time."""
        self._socket.settimeout(seconds)
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(SECONDS_MAX)

    def finish_sending(self) -> None:
        """Say that no more requests will come, and go on reading."""
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Let the close be a reset, as when a process is killed."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def another(self) -> "Asker":
        """A second connection to the same broker."""
        return Asker(self.port, is_kafka=self.is_kafka)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- Topics ---

    def create(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> UUID:
        """Create a topic that is served when this returns; its id."""
        topic = create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=(),
            configs=tuple(
                create_topics.CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ),
        )
        request = create_topics.CreateTopicsRequest(topics=(topic,), timeout_ms=TIMEOUT_MS)
        (result,) = self.ask(request, 7, create_topics.CreateTopicsResponse).topics
        assert result.error_code == ErrorCode.NONE, result
        assert result.topic_id is not None
        self._wait_until_led(name, partitions)
        return result.topic_id

    def _wait_until_led(self, name: str, partitions: int) -> None:
        asked = dict.fromkeys(range(partitions), -1)
        self.until(
            lambda: not any(found.error_code for found in self.list_offsets(name, asked).values())
        )

    def until(self, condition: Callable[[], bool]) -> None:
        """Assert a condition; Kafka gets time, because its brokers learn of changes later."""
        deadline = time.monotonic() + (SECONDS_MAX if self.is_kafka else 0.0)
        while not condition():
            assert time.monotonic() < deadline

    def describe(self, name: str) -> metadata.MetadataResponseTopic:
        """What Metadata says of a topic; it is not created."""
        request = metadata.MetadataRequest(
            topics=(metadata.MetadataRequestTopic(name=name),), allow_auto_topic_creation=False
        )
        (topic,) = self.ask(request, 13, metadata.MetadataResponse).topics
        return topic

    def delete(self, name: str) -> None:
        """Delete a topic that is gone when this returns."""
        request = delete_topics.DeleteTopicsRequest(topic_names=(name,), timeout_ms=TIMEOUT_MS)
        (result,) = self.ask(request, 5, delete_topics.DeleteTopicsResponse).responses
        assert result.error_code == ErrorCode.NONE, result
        self.until_described(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def until_described(self, name: str, code: ErrorCode) -> None:
        """Assert what Metadata says of a topic."""
        self.until(lambda: self.describe(name).error_code == code)

    # --- Records ---

    def producer_id(self) -> int:
        """A new producer id, or -1 while there is none."""
        request = init_producer_id.InitProducerIdRequest(transaction_timeout_ms=TIMEOUT_MS)
        return self.ask(request, 5, init_producer_id.InitProducerIdResponse).producer_id

    def produce(
        self, topic: str, records: bytes | None, *, acks: int = -1, partition: int = 0
    ) -> produce.PartitionProduceResponse:
        """Send one batch to one partition."""
        request = produce_request(topic, {partition: records}, acks=acks)
        answer = self.ask(request, NAMED, produce.ProduceResponse)
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, **bounds: int) -> fetch.PartitionData:
        """Fetch one partition by name, without a session; see `fetch_request` for the bounds."""
        request = fetch_request({topic: {0: offset}}, **bounds)
        answer = self.ask(request, NAMED, fetch.FetchResponse)
        assert answer.error_code == ErrorCode.NONE
        return answer.responses[0].partitions[0]

    def list_offsets(
        self, topic: str, timestamps: Mapping[int, int], version: int = 11
    ) -> dict[int, list_offsets.ListOffsetsPartitionResponse]:
        """Ask for one offset in each of some partitions."""
        request = list_offsets_request(topic, timestamps)
        answer = self.ask(request, version, list_offsets.ListOffsetsResponse)
        return {found.partition_index: found for found in answer.topics[0].partitions}


def produce_request(
    topic: str | UUID,
    records: Mapping[int, bytes | None],
    *,
    acks: int = -1,
    timeout_ms: int = TIMEOUT_MS,
    transactional_id: str | None = None,
) -> produce.ProduceRequest:
    """A batch for each of some partitions of one topic."""
    is_id = isinstance(topic, UUID)
    return produce.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=(
            produce.TopicProduceData(
                name="" if is_id else str(topic),
                topic_id=topic if isinstance(topic, UUID) else None,
                partition_data=tuple(
                    produce.PartitionProduceData(index=index, records=data)
                    for index, data in records.items()
                ),
            ),
        ),
    )


def fetch_request(
    topics: Mapping[str, Mapping[int, int]] | Mapping[UUID, Mapping[int, int]],
    *,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 52_428_800,
    partition_max_bytes: int = 1_048_576,
    session_id: int = 0,
    session_epoch: int = -1,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    isolation_level: int = 0,
) -> fetch.FetchRequest:
    """A fetch of partitions, from an offset each, of topics by name or by id."""
    return fetch.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=tuple(
            fetch.FetchTopic(
                topic="" if isinstance(topic, UUID) else topic,
                topic_id=topic if isinstance(topic, UUID) else None,
                partitions=tuple(
                    fetch.FetchPartition(
                        partition=index,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        current_leader_epoch=leader_epoch,
                        last_fetched_epoch=last_fetched_epoch,
                    )
                    for index, offset in offsets.items()
                ),
            )
            for topic, offsets in topics.items()
        ),
    )


def list_offsets_request(
    topic: str, timestamps: Mapping[int, int], *, leader_epoch: int = -1
) -> list_offsets.ListOffsetsRequest:
    """One question for each of some partitions."""
    return list_offsets.ListOffsetsRequest(
        replica_id=-1,
        topics=(
            list_offsets.ListOffsetsTopic(
                name=topic,
                partitions=tuple(
                    list_offsets.ListOffsetsPartition(
                        partition_index=index,
                        timestamp=timestamp,
                        current_leader_epoch=leader_epoch,
                    )
                    for index, timestamp in timestamps.items()
                ),
            ),
        ),
    )
