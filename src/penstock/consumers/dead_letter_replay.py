"""`replay`: writes dead letters to their original topics again, each once.

Records and the position of the replay group are committed in one transaction, so a crash repeats no
record and skips none. A second replay of the same topic at the same time fences the first: it fails
and its open transaction is aborted. Records are written with their key, value and own headers to
the partition they came from, if the topic still has it; with the time of the replay, so that the
topic's retention does not delete them at once.

All groups of the original topic get a replayed record, not only the group whose handler failed.
Records of other programs have no origin: they are passed over and counted.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from penstock.client.cluster import Cluster
from penstock.client.records.batch_sender import BatchSender
from penstock.client.records.partitioner import partition_of_key
from penstock.client.transactions.producer_transactions import VERSION_0, ProducerTransactions
from penstock.client.transactions.transaction_offsets import TransactionOffsets
from penstock.client.transactions.transaction_outcomes import OpenTransaction
from penstock.consumers.dead_letter_topics import DeadLetter, read_dead_letters, replay_group
from penstock.consumers.delivery.dead_letters import application_headers
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
    """Records without an origin."""

    @property
    def count(self) -> int:
        """Return the number of records that were written."""
        return sum(self.records.values())


def replay(
    cluster: Cluster, topic: str, *, partition: int | None = None, limit: int | None = None
) -> Replayed:
    """Replay the waiting records of a dead-letter topic, at most `limit`."""
    run = _Replay(cluster, topic)
    letters = read_dead_letters(cluster, topic, partition=partition)
    for chunk in _chunks(islice(letters, limit)):
        run.write(chunk)
    return run.done


class _Replay:
    """The transactions of one replay, one after another."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._name = replay_group(topic)
        self._transactions = ProducerTransactions(cluster)
        self._offsets = TransactionOffsets(cluster)
        # Before positions are read: it ends the transaction of an interrupted replay.
        self._transaction = self._transactions.begin(self._name, TRANSACTION_TIMEOUT_MS)
        self._sequences: dict[TopicPartition, int] = {}
        self.done = Replayed()

    def write(self, chunk: list[DeadLetter]) -> None:
        """Write the records and the position behind them in one transaction."""
        transaction = self._transaction
        builders: dict[TopicPartition, BatchBuilder] = {}
        for letter in chunk:
            if letter.origin is not None:
                at = self._place_of(letter)
                builders.setdefault(at, BatchBuilder()).append(self._record_of(letter))
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
        self._count(chunk)

    def _place_of(self, letter: DeadLetter) -> TopicPartition:
        assert letter.origin is not None
        topic, partition = letter.origin.topic, letter.origin.partition
        partition_count = len(self._cluster.partitions_of(topic))
        if partition >= partition_count or partition < 0:
            partition = partition_of_key(letter.record.key or b"", partition_count)
        return TopicPartition(topic, partition)

    def _record_of(self, letter: DeadLetter) -> Record:
        headers = application_headers(tuple(letter.record.headers))
        return Record(
            letter.record.key,
            letter.record.value,
            tuple(Header(name, value) for name, value in headers),
            self._cluster.clock.now_ms(),
        )

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

    def _count(self, chunk: list[DeadLetter]) -> None:
        for letter in chunk:
            if letter.origin is None:
                self.done.passed_over += 1
            else:
                topic = letter.origin.topic
                self.done.records[topic] = self.done.records.get(topic, 0) + 1


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
