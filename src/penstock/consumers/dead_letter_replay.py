"""`replay`: writes dead letters to their original topics again, or to one other topic, each once.

A letter names its topic in a header, which each producer of the dead-letter topic can write. So the
caller says which topics are allowed, or names the topic for all records (`ReplayTo`). At the first
letter that names another topic the replay ends, before that letter.

Records and the position of the replay group are committed in one transaction, so a crash repeats no
record and skips none. A second replay of the same topic at the same time fences the first: it fails
and its open transaction is aborted. Records are written with their key, value and own headers to
the partition they came from, if the topic still has it; with the time of the replay, so that the
topic's retention does not delete them at once.

All groups of the original topic get a replayed record, not only the group whose handler failed.
Records of other programs have no origin: they are passed over and counted. So are letters of share
groups without a copy whose source record is deleted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from penstock.client.cluster import Cluster
from penstock.client.records.batch_sender import BatchSender
from penstock.client.records.partitioner import partition_of_key
from penstock.client.records.positions import AT_OFFSET, Start
from penstock.client.records.topic_reader import ReadRecord, TopicReader
from penstock.client.transactions.producer_transactions import VERSION_0, ProducerTransactions
from penstock.client.transactions.transaction_offsets import TransactionOffsets
from penstock.client.transactions.transaction_outcomes import OpenTransaction
from penstock.consumers.dead_letter_topics import DeadLetter, read_dead_letters, replay_group
from penstock.core.errors import UnknownTopicOrPartitionError
from penstock.core.types import TopicPartition
from penstock.records.builder import BatchBuilder
from penstock.records.record import Header, Record

CHUNK_RECORDS_MAX: Final = 500
CHUNK_BYTES_MAX: Final = 500_000
"""One batch of these sizes is below the default limit of a topic, 1 MB."""
TRANSACTION_TIMEOUT_MS: Final = 60_000


@dataclass(slots=True)
class Replayed:
    """The outcome of a replay."""

    records: dict[str, int] = field(default_factory=dict)
    """Records by topic."""
    passed_over: int = 0
    """Records without an origin, or without content."""
    refused_topic: str | None = None
    """The topic that ended the replay: it was not allowed."""

    @property
    def count(self) -> int:
        """Return the number of records that were written."""
        return sum(self.records.values())


class ReplayTo(NamedTuple):
    """The topics that a replay may write to."""

    allowed: frozenset[str] = frozenset()
    """Original topics that letters may name."""
    topic: str | None = None
    """Write all records to this topic, whatever the letters name. A letter without a copy must name
    this topic or an allowed one: its record is read there, with the rights of the user."""

    def allows(self, letter: DeadLetter) -> bool:
        """Whether the record of a letter may be written."""
        if letter.origin is None or (self.topic is not None and letter.has_copy):
            return True
        return letter.origin.topic in self.allowed or letter.origin.topic == self.topic


class Chosen(NamedTuple):
    """The letters of one replay."""

    topic: str
    partition: int | None = None
    limit: int | None = None
    share_group: str | None = None
    """Only letters of this share group."""

    def read(self, cluster: Cluster) -> Iterator[DeadLetter]:
        """Return the letters that wait for a replay."""
        letters = read_dead_letters(
            cluster, self.topic, partition=self.partition, share_group=self.share_group
        )
        return islice(letters, self.limit)


def original_topics(cluster: Cluster, chosen: Chosen, *, is_source: bool = False) -> dict[str, int]:
    """Return the topics that waiting letters name, with the number of letters of each.

    `is_source`: only those of letters without a copy, whose topics are read by a replay.
    """
    return dict(
        Counter(
            one.origin.topic
            for one in chosen.read(cluster)
            if one.origin is not None and not (is_source and one.has_copy)
        )
    )


def replay(cluster: Cluster, chosen: Chosen, to: ReplayTo) -> Replayed:
    """Replay waiting letters."""
    run = _Replay(cluster, chosen, to)
    for chunk in _chunks(run.allowed(chosen.read(cluster))):
        run.write(chunk)
    return run.done


class _Replay:
    """The transactions of one replay, one after another."""

    def __init__(self, cluster: Cluster, chosen: Chosen, to: ReplayTo) -> None:
        self._cluster = cluster
        self._to = to
        self._name = replay_group(chosen.topic, chosen.share_group)
        self._transactions = ProducerTransactions(cluster)
        self._offsets = TransactionOffsets(cluster)
        # Before positions are read: it ends the transaction of an interrupted replay.
        self._transaction = self._transactions.begin(self._name, TRANSACTION_TIMEOUT_MS)
        self._sequences: dict[TopicPartition, int] = {}
        self.done = Replayed()

    def allowed(self, letters: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
        """Yield letters up to the first whose topic is not allowed."""
        for letter in letters:
            if not self._to.allows(letter):
                assert letter.origin is not None
                self.done.refused_topic = letter.origin.topic
                return
            yield letter

    def write(self, chunk: list[DeadLetter]) -> None:
        """Write the records and the position behind them in one transaction."""
        transaction = self._transaction
        builders: dict[TopicPartition, BatchBuilder] = {}
        counts, passed_over = Counter[str](), 0
        for letter in chunk:
            record = None if letter.origin is None else self._record_of(letter)
            if record is None:
                passed_over += 1
                continue
            at = self._place_of(letter)
            builders.setdefault(at, BatchBuilder()).append(record)
            counts[at.topic] += 1
        sender = BatchSender(
            self._cluster,
            transactional_id=transaction.transactional_id,
            join=(lambda some: self._transactions.add_partitions(transaction, some))
            if transaction.version == VERSION_0
            else None,
        )
        for at, builder in builders.items():
            sender.send(at, self._built(at, builder))
        sender.flush()
        ends = {
            TopicPartition(one.record.topic, one.record.partition): one.record.offset + 1
            for one in chunk
        }
        self._offsets.commit(transaction, self._name, ends)
        self._next(self._transactions.end(transaction, commits=True))
        self.done.passed_over += passed_over
        for name, count in counts.items():
            self.done.records[name] = self.done.records.get(name, 0) + count

    def _place_of(self, letter: DeadLetter) -> TopicPartition:
        assert letter.origin is not None
        topic, partition = self._to.topic or letter.origin.topic, letter.origin.partition
        partition_count = len(self._cluster.partitions_of(topic))
        if partition >= partition_count or partition < 0:
            partition = partition_of_key(letter.record.key or b"", partition_count)
        return TopicPartition(topic, partition)

    def _record_of(self, letter: DeadLetter) -> Record | None:
        key, value, headers = letter.record.key, letter.record.value, letter.headers
        if not letter.has_copy:
            source = self._source_of(letter)
            if source is None:
                return None
            key, value, headers = source.key, source.value, tuple(source.headers)
        own = tuple(Header(name, content) for name, content in headers)
        return Record(key, value, own, self._cluster.clock.now_ms())

    def _source_of(self, letter: DeadLetter) -> ReadRecord | None:
        """Return the record that a letter without a copy names; None if it is deleted."""
        assert letter.origin is not None
        at = TopicPartition(letter.origin.topic, letter.origin.partition)
        try:
            self._cluster.partitions_of(at.topic, (at.partition,))
            start = Start(AT_OFFSET, letter.origin.offset)
            found = next(TopicReader(self._cluster, [at], start).records(), None)
        except UnknownTopicOrPartitionError:
            return None
        return None if found is None or found.offset != letter.origin.offset else found

    def _built(self, at: TopicPartition, builder: BatchBuilder) -> bytearray:
        sequence = self._sequences.get(at, 0)
        self._sequences[at] = sequence + builder.record_count
        return builder.build(
            producer_id=self._transaction.producer_id,
            producer_epoch=self._transaction.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )

    def _next(self, transaction: OpenTransaction) -> None:
        """Continue with the identity for the next transaction; a new epoch counts from 0."""
        before = (self._transaction.producer_id, self._transaction.producer_epoch)
        if before != (transaction.producer_id, transaction.producer_epoch):
            self._sequences.clear()
        self._transaction = transaction


def _chunks(letters: Iterable[DeadLetter]) -> Iterator[list[DeadLetter]]:
    chunk: list[DeadLetter] = []
    size_bytes = 0
    for letter in letters:
        record = letter.record
        added = len(record.key or b"") + len(record.value or b"")
        added += sum(len(name) + len(value or b"") for name, value in record.headers)
        if chunk and (len(chunk) >= CHUNK_RECORDS_MAX or size_bytes + added > CHUNK_BYTES_MAX):
            yield chunk
            chunk, size_bytes = [], 0
        chunk.append(letter)
        size_bytes += added
    if chunk:
        yield chunk
