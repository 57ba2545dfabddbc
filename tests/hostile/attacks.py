"""Attacks on produce, fetch and administration: the client chooses the price, the broker pays it.

`prepare` runs once, before the measurement. `strike` runs again and again on a thread of its own
until the attack is over; it may be rejected, delayed or disconnected, and counts its requests.
"""

import contextlib
import itertools
import random
import time
from collections.abc import Iterator
from typing import ClassVar

from penstock.protocol.codec import Message
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.records.builder import build_batch
from penstock.records.record import Record
from tests.bad_input.batches import NOW_MS, changed, good, produce, sealed
from tests.bad_input.wire import Peer, well_formed
from tests.hostile.payloads import legal_bomb, tiny_records_batch, zeros_bomb

MAX_TIMESTAMP = -3
RECORDS_MAX = 1_000_000


class Attack:
    """One way to be a bad neighbour."""

    name: ClassVar[str]
    pause_seconds: ClassVar[float] = 0.0
    """Between two strikes."""

    def __init__(self, port: int, dice: random.Random, scale: float) -> None:
        """`scale` is 1 for the full size; samples use less."""
        self.port = port
        self.dice = dice
        self.scale = scale
        self.sent = 0

    def prepare(self) -> None:
        """Create topics and data."""

    def strike(self) -> None:
        """Attack once."""
        raise NotImplementedError

    def size(self, full: int) -> int:
        """A count at this attack's scale."""
        return max(1, round(full * self.scale))

    def exchange(self, peer: Peer, *requests: bytes) -> None:
        """Send requests in one burst and read as many answers; the broker may close instead."""
        peer.send(b"".join(requests))
        for _ in requests:
            if peer.answer() is None:
                return
            self.sent += 1

    @contextlib.contextmanager
    def peers(self, count: int) -> Iterator[list[Peer]]:
        """Connections that are closed afterwards, answered or not."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(Peer(self.port)) for _ in range(count)]


def create_topic(port: int, name: str, partitions: int = 1, **settings: str) -> None:
    """Create a topic; dots in the names of settings are underscores here."""
    configs = tuple(
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in settings.items()
    )
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=(),
        configs=configs,
    )
    with Peer(port) as peer:
        peer.socket.settimeout(120)
        peer.call(CreateTopicsRequest(topics=(topic,), timeout_ms=60_000), 5)


class Bombs(Attack):
    """Pipelined batches that unfold to 128 MiB each and are refused then."""

    name = "bombs"

    def prepare(self) -> None:
        create_topic(self.port, "bombs")
        zeros_bomb()

    def strike(self) -> None:
        request = produce(zeros_bomb(), topic="bombs")
        with Peer(self.port) as peer:
            self.exchange(peer, *[request] * self.size(40))


class Recompression(Attack):
    """A small batch that unfolds to much, for a topic that compresses with gzip."""

    name = "recompression"

    def prepare(self) -> None:
        create_topic(self.port, "recompressed", compression_type="gzip")
        self._request = produce(legal_bomb(self.size(120_000_000)), topic="recompressed")

    def strike(self) -> None:
        with Peer(self.port) as peer:
            self.exchange(peer, self._request, self._request)


class TinyRecords(Attack):
    """Legal batches with as many records as a batch may have."""

    name = "tiny-records"

    def prepare(self) -> None:
        create_topic(self.port, "tiny", retention_bytes="8388608", segment_bytes="4194304")
        self._request = produce(tiny_records_batch(self.size(RECORDS_MAX)), topic="tiny")

    def strike(self) -> None:
        with Peer(self.port) as peer:
            self.exchange(peer, self._request, self._request)


class TimeLookups(Attack):
    """ListOffsets by time and for the highest timestamp, in a batch of a million records."""

    name = "time-lookups"

    def prepare(self) -> None:
        create_topic(self.port, "looked-up")
        with Peer(self.port) as peer:
            for _ in range(3):
                batch = tiny_records_batch(self.size(RECORDS_MAX))
                self.exchange(peer, produce(batch, topic="looked-up"))

    def strike(self) -> None:
        moments = (MAX_TIMESTAMP, 1, self.dice.randrange(1, 2**41))
        with self.peers(8) as peers:
            for peer, moment in zip(peers, itertools.cycle(moments), strict=False):
                peer.send(self._request(moment))
            for peer in peers:
                if peer.answer() is not None:
                    self.sent += 1

    def _request(self, timestamp_ms: int) -> bytes:
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp_ms)
        topic = ListOffsetsTopic(name="looked-up", partitions=(partition,))
        return well_formed(ListOffsetsRequest(replica_id=-1, topics=(topic,)), 7)


class Compaction(Attack):
    """Batches of a million distinct keys in a compacted topic that is always due."""

    name = "compaction"

    def prepare(self) -> None:
        create_topic(
            self.port,
            "compacted",
            cleanup_policy="compact",
            min_cleanable_dirty_ratio="0.0",
            segment_bytes="1048576",
        )
        batch = tiny_records_batch(self.size(RECORDS_MAX), is_keyed=True)
        self._request = produce(batch, topic="compacted")
        self._small = produce(sealed(good(3)), topic="compacted")

    def strike(self) -> None:
        with Peer(self.port) as peer:
            self.exchange(peer, self._request, *[self._small] * 20, self._request)
        time.sleep(0.5)


class ManyProducers(Attack):
    """A partition that remembers tens of thousands of producers and rolls all the time."""

    name = "many-producers"

    def prepare(self) -> None:
        create_topic(self.port, "crowded", segment_bytes="1048576", retention_bytes="8388608")
        self._next_id = 10_000_000
        self._large = good(1, size=900_000)
        for _ in range(self.size(60_000) // 500):
            self._introduce(500)

    def strike(self) -> None:
        self._introduce(100)
        with Peer(self.port) as peer:
            self.exchange(peer, *[produce(self._large, topic="crowded")] * 3)

    def _introduce(self, count: int) -> None:
        """As many batches of producers that the partition has not seen."""
        requests = []
        for _ in range(count):
            self._next_id += 1
            batch = build_batch(
                [Record(value=b"v", timestamp_ms=NOW_MS)],
                producer_id=self._next_id,
                producer_epoch=0,
                base_sequence=0,
            )
            requests.append(produce(bytes(batch), topic="crowded"))
        with Peer(self.port) as peer:
            for start in range(0, count, 50):
                self.exchange(peer, *requests[start : start + 50])


class Wide(Attack):
    """One request that names thousands of partitions."""

    partitions_full: ClassVar[int] = 5_000
    version: ClassVar[int]

    def prepare(self) -> None:
        self.partitions = self.size(self.partitions_full)
        create_topic(self.port, "wide", self.partitions)
        self._bytes = well_formed(self.request(), self.version)

    def request(self) -> Message:
        """The request, built once."""
        raise NotImplementedError

    def strike(self) -> None:
        with Peer(self.port) as peer:
            self.exchange(peer, self._bytes, self._bytes)


class WideProduce(Wide):
    """Produce to every partition at once."""

    name = "wide-produce"
    version = 8

    def request(self) -> Message:
        batch = good(1)
        data = tuple(
            PartitionProduceData(index=index, records=batch) for index in range(self.partitions)
        )
        topic = TopicProduceData(name="wide", topic_id=None, partition_data=data)
        return ProduceRequest(
            transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=(topic,)
        )


class WideFetch(Wide):
    """Fetch tens of thousands of partitions, most of which do not exist."""

    name = "wide-fetch"
    version = 11

    def request(self) -> Message:
        partitions = tuple(
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1_000)
            for index in range(self.size(60_000))
        )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1_000_000,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=(FetchTopic(topic="wide", partitions=partitions),),
            forgotten_topics_data=(),
        )


class WideListOffsets(Wide):
    """Look up every partition's offset by time."""

    name = "wide-list-offsets"
    version = 4

    def request(self) -> Message:
        partitions = tuple(
            ListOffsetsPartition(partition_index=index, timestamp=1)
            for index in range(self.partitions)
        )
        topic = ListOffsetsTopic(name="wide", partitions=partitions)
        return ListOffsetsRequest(replica_id=-1, topics=(topic,))


class WideMetadata(Wide):
    """Ask for tens of thousands of topics that do not exist."""

    name = "wide-metadata"
    version = 5

    def request(self) -> Message:
        topics = tuple(
            MetadataRequestTopic(name=f"none-{index}") for index in range(self.size(100_000))
        )
        return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


class Refusals(Attack):
    """Batches in which each of ten thousand records is at fault, and batches that lie."""

    name = "refusals"

    def prepare(self) -> None:
        create_topic(self.port, "strict", cleanup_policy="compact")
        create_topic(self.port, "recent", message_timestamp_before_max_ms="1000")
        keyless = tiny_records_batch(self.size(10_000))
        old = sealed(keyless, base_timestamp=1, max_timestamp=1)
        lying = sealed(good(2), record_count=2_000_000_000, last_offset_delta=1_999_999_999)
        torn = changed(good(2), crc=7)
        self._requests = [
            *(produce(batch, topic="strict") for batch in (keyless, lying, torn)),
            produce(old, topic="recent"),
        ]

    def strike(self) -> None:
        with Peer(self.port) as peer:
            self.exchange(peer, *self._requests * 4)


class Churn(Attack):
    """Connections that come and go, a part of them in the middle of a request."""

    name = "churn"

    def strike(self) -> None:
        for _ in range(200):
            peer = Peer(self.port)
            peer.send(produce(good(1), topic="none")[: self.dice.randrange(40)])
            if self.dice.random() < 0.5:
                peer.reset()
            peer.close()
            self.sent += 1
