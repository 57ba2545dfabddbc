"""Topics in tests: create a topic, append records, read records, wait for more.

This module uses Penstock's own client, so that a test needs no other; it works with any Kafka
broker. Each call opens a connection and closes it, so that a failed test leaves no connection open.

A wait reads again every few milliseconds, and continues when a broker is down meanwhile. On an
event loop it does not wait: it reads once, which blocks the loop until the broker has answered, and
the error names the call to use instead.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.client.calls import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NewTopic
from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.client.records.range_reader import AbortedTransaction, FetchedBatches, RangeReader
from penstock.client.records.topic_writer import TopicWriter
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.options import ClientOptions
from penstock.core.errors import ClientError, UnknownTopicOrPartitionError
from penstock.core.types import TopicPartition
from penstock.records.batch import BatchHeader, iterate_headers
from penstock.records.builder import read_records
from penstock.records.record import Record
from penstock.testing.limits import ARRIVAL_SECONDS_MAX

Text = str | bytes
"""The type of a key, a value or a header; text becomes UTF-8."""

CALL_SECONDS_MAX: Final = 30.0
"""Timeout of one call with its retries: longer than a pause in a test, shorter than a test."""
REQUEST_SECONDS_MIN: Final = 1.0
"""Timeout of one request of a wait, also of a short wait: a wait of 0 s still reads once."""
LOOK_SECONDS: Final = 0.01
"""Pause between two reads of a topic."""
SHOWN_RECORDS_MAX: Final = 20
"""Records that a failure shows, at each end of the list."""
SHOWN_CHARACTERS_MAX: Final = 120
"""Characters of a key or value in a failure."""
_ABORT_MARKER: Final = b"\x00\x00\x00\x00"
"""The key of the marker of an aborted transaction: version 0, type 0."""
_ON_A_LOOP: Final = (
    "Waiting for more would stop the event loop that runs here. Write "
    "`await AsyncBroker.of(broker).records(...)` or `await penstock_records.until(...)`."
)


class RecordsMissingError(AssertionError):
    """Fewer records arrived than expected; the message shows the arrived records."""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record with its position; `key`, `value` and `headers` are its UTF-8 texts."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key_bytes: bytes | None
    value_bytes: bytes | None
    header_bytes: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def key(self) -> str | None:
        """Return the key as text."""
        return None if self.key_bytes is None else self.key_bytes.decode()

    @property
    def value(self) -> str | None:
        """Return the value as text."""
        return None if self.value_bytes is None else self.value_bytes.decode()

    @property
    def headers(self) -> dict[str, str | None]:
        """Return the headers as texts; of a repeated name, the last."""
        return {
            name: None if content is None else content.decode()
            for name, content in self.header_bytes
        }

    def json(self) -> Any:  # noqa: ANN401 (whatever the document is)
        """Return the value as a JSON document."""
        assert self.value_bytes is not None, "the record has no value"
        return json.loads(self.value_bytes)

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition} at {self.offset}"
        return f"{place}: key {_shown(self.key_bytes)}, value {_shown(self.value_bytes)}"


def create_topic(
    bootstrap: str, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> None:
    """Create a topic; raise if one of this name exists."""
    with _cluster(bootstrap) as cluster:
        cluster.create_topic(NewTopic(topic, partitions, 1, dict(configs or {})))


def produce(
    bootstrap: str,
    topic: str,
    values: Sequence[Text | None],
    key: Text | None = None,
    headers: Mapping[str, Text] | None = None,
    partition: int | None = None,
) -> None:
    """Append records, and return when all are acknowledged."""
    contents = [(name, _encoded(content)) for name, content in (headers or {}).items()]
    with _cluster(bootstrap) as cluster:
        writer = TopicWriter(cluster, topic, partition=partition)
        for value in values:
            writer.append(
                None if key is None else _encoded(key),
                None if value is None else _encoded(value),
                contents,
            )
        writer.flush()


def arrived_records(
    bootstrap: str,
    topic: str,
    *,
    count: int | None = None,
    timeout_seconds: float = ARRIVAL_SECONDS_MAX,
    partitions: Sequence[int] = (),
    committed: bool = True,
) -> list[TopicRecord]:
    """Return a topic's records, by partition and offset; with `count`, wait for that number."""
    # A wait with `count` retries itself: retries of the client would have their own deadline.
    retry_seconds = timeout_seconds if count is None else 0.0
    request_seconds = max(REQUEST_SECONDS_MIN, timeout_seconds)
    with _cluster(bootstrap, request_seconds, retry_seconds) as cluster:
        look = _Look(cluster, topic, partitions, is_read_committed=committed)
        if count is None:
            look.read_on()
            return look.records()
        may_wait = not _is_on_a_loop()
        problem = _look_until(look, count, timeout_seconds if may_wait else 0.0)
        found = look.records()
        if len(found) >= count:
            return found
        message = _missing(topic, count, found, f"within {timeout_seconds:g} s")
        if not may_wait:
            message = _missing(topic, count, found, f"yet\n{_ON_A_LOOP}")
        if problem is not None:
            message += f"\nThe last look failed: {problem}"
        raise RecordsMissingError(message)


def _look_until(look: "_Look", count: int, seconds: float) -> Exception | None:
    """Read until there are `count` records or time is up; return the error of the last read."""
    deadline = time.monotonic() + seconds
    while True:
        problem: Exception | None = None
        try:
            look.read_on()
        except (ClientError, UnknownTopicOrPartitionError) as error:
            # The broker is down, or the topic does not exist yet: the next read may succeed.
            problem = error
        left = deadline - time.monotonic()
        if look.count >= count or left <= 0:
            return problem
        time.sleep(min(LOOK_SECONDS, left))


class _Look:
    """The records of a topic that were read so far."""

    def __init__(
        self, cluster: Cluster, topic: str, partitions: Sequence[int], *, is_read_committed: bool
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self._is_read_committed = is_read_committed
        self._next: dict[TopicPartition, int] = {}
        self._found: dict[TopicPartition, list[TopicRecord]] = {}

    @property
    def count(self) -> int:
        """Return the number of records read."""
        return sum(len(records) for records in self._found.values())

    def records(self) -> list[TopicRecord]:
        """Return the records read, by partition and offset."""
        return [record for at in sorted(self._found) for record in self._found[at]]

    def read_on(self) -> None:
        """Read the records since the last call."""
        places = self._cluster.partitions_of(self._topic, self._partitions)
        new = [at for at in places if at not in self._next]
        if new:
            self._next |= self._cluster.find_offsets(dict.fromkeys(new, EARLIEST_TIMESTAMP))
        ends = self._cluster.look_up_offsets(
            dict.fromkeys(places, LATEST_TIMESTAMP), is_read_committed=self._is_read_committed
        )
        for at in places:
            self._read_partition(at, ends[at].offset)

    def _read_partition(self, at: TopicPartition, end: int) -> None:
        begin = self._next[at]
        if begin >= end:
            return
        reader = RangeReader(
            self._cluster, at, begin, end, is_read_committed=self._is_read_committed
        )
        found = self._found.setdefault(at, [])
        aborted = _AbortedTransactions()
        for fetched in reader:
            for record in _visible_records(at, fetched, aborted):
                if self._next[at] <= record.offset < end:
                    found.append(record)
            self._next[at] = fetched.next_offset


class _AbortedTransactions:
    """Finds the batches of aborted transactions, batch by batch in the order of the log."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._begun: set[AbortedTransaction] = set()
        """Transactions whose first batch was read. A later transaction of the producer is another
        entry."""

    def hides(
        self, batch: BatchHeader, records: Sequence[Record], aborted: Sequence[AbortedTransaction]
    ) -> bool:
        """Whether a batch is hidden from consumers with `read_committed`."""
        if batch.is_control:
            if records and records[0].key == _ABORT_MARKER:
                self._open.discard(batch.producer_id)
            return True
        for one in aborted:
            if one.first_offset <= batch.last_offset and one not in self._begun:
                self._begun.add(one)
                self._open.add(one.producer_id)
        return batch.is_transactional and batch.producer_id in self._open


def _visible_records(
    at: TopicPartition, fetched: FetchedBatches, aborted: _AbortedTransactions
) -> Iterator[TopicRecord]:
    for position, batch in iterate_headers(fetched.data):
        records = read_records(fetched.data, position)
        if not aborted.hides(batch, records, fetched.aborted):
            for record in records:
                yield TopicRecord(
                    at.topic,
                    at.partition,
                    record.offset,
                    record.timestamp_ms,
                    record.key,
                    record.value,
                    tuple((header.key, header.value) for header in record.headers),
                )


def _missing(topic: str, count: int, found: Sequence[TopicRecord], waited: str) -> str:
    """Return the message of a failed test: the number of arrived records, and the records."""
    lines = [f"{count} records were expected in {topic!r}, {len(found)} arrived {waited}"]
    hidden = len(found) - 2 * SHOWN_RECORDS_MAX
    for number, record in enumerate(found):
        if hidden <= 0 or number < SHOWN_RECORDS_MAX or number >= SHOWN_RECORDS_MAX + hidden:
            lines.append(f"  {record}")
        elif number == SHOWN_RECORDS_MAX:
            lines.append(f"  ... {hidden} more ...")
    return "\n".join(lines)


def _cluster(
    bootstrap: str,
    request_seconds: float = CALL_SECONDS_MAX,
    retry_seconds: float = CALL_SECONDS_MAX,
) -> Cluster:
    options = ClientOptions(
        parse_addresses(bootstrap),
        client_id="penstock-testing",
        request_timeout_ms=round(request_seconds * 1_000),
        retry_timeout_ms=round(retry_seconds * 1_000),
    )
    return open_cluster(options, repeats_first_contact=False)


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _encoded(text: Text) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _shown(data: bytes | None) -> str:
    if data is None:
        return "none"
    text = repr(data.decode(errors="backslashreplace"))
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}..."
