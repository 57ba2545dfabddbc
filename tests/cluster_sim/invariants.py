"""The promises of the cluster, checked after every step of a broker and every write to the store.

Numbers as in the design: (1) one leader for each partition and epoch; (2) the leader epoch of a
partition never falls, and rises with each new leader; (3) an acknowledged record is on the disk of
every valid member of the stored ISR and ELR; (4) the high watermark never falls in an epoch, and a
clean leader has everything that was below one; (5) logs agree byte for byte below the smallest high
watermark; (6) no replica cuts below its high watermark, and the log of a leader grows by records of
its own epoch only; (7) no metadata write of a broker lands whose registration has ended; (8) one
shard answers for the keys of a coordinator's partition in an epoch; (12) a broker that has left
because its disk failed is not elected while another valid replica is registered.

The durable end of a log is the one that its storage reports; a restart must find it again. It
changes nothing in the brokers. It does NOT check the answers to clients: the history checker does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from penstock.cluster.image import PartitionImage
from penstock.cluster.image import Replica as Member
from penstock.cluster.keys import KeyKind, Keys
from penstock.cluster.partition_values import read_partition
from penstock.cluster.stores.port import (
    Compare,
    EventBatch,
    KeyValue,
    Operation,
    Put,
    TransactionResult,
)
from penstock.cluster.values import read_topic
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.partition import PartitionState
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.managed_directory import ManagedDirectory
from tests.cluster_sim.brokers import SimulatedBroker
from tests.cluster_sim.store import StoreNetwork

COMPARED_BYTES_MAX: Final = 1 << 20

PartitionId = tuple[UUID, int]


class ViolationError(AssertionError):
    """A promise is broken."""


@dataclass
class Replica:
    """One broker's log of one partition, as it was last seen."""

    incarnation: int = 0
    state: PartitionState | None = None
    """The role object: its identity changes with role and epoch."""
    log: PartitionLog | None = None
    home: ManagedDirectory | None = None
    high_watermark: int = 0
    end_offset: int = 0
    synced_offset: int = 0

    @property
    def kept_offset(self) -> int:
        """Up to where a restart must find records. A cut that a crash interrupts may be done."""
        is_being_cut = self.home is not None and self.log in self.home.unsettled
        return self.high_watermark if is_being_cut else self.synced_offset


@dataclass
class Partition:
    """What is known about one partition."""

    stored: PartitionImage | None = None
    acknowledged_end: int = 0
    """End of the records that were acknowledged to a client with acks=all."""
    committed_end: int = 0
    """The highest high watermark of any leader."""
    leaders: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Broker and incarnation of the leader of each epoch."""
    replicas: dict[int, Replica] = field(default_factory=dict)
    compared_end: int = 0
    was_unclean: bool = False
    removed: set[int] = field(default_factory=set)
    """Brokers that were taken out of the replicas: they delete their logs."""
    shards: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Broker and incarnation of the shard of each epoch, of an internal topic."""
    withdrawn: dict[int, int] = field(default_factory=dict)
    """Brokers that have withdrawn with a failed disk, and their incarnations."""


class Invariants:
    """Observes the brokers and the store."""

    def __init__(
        self, brokers: dict[int, SimulatedBroker], stores: StoreNetwork, *, has_elections: bool
    ) -> None:
        """`has_elections`: a leader that restarts leads in a new epoch."""
        self._brokers = brokers
        self._has_elections = has_elections
        self._shared = stores.shared
        self._keys = Keys()
        self.partitions: dict[PartitionId, Partition] = {}
        self.topic_ids: dict[str, UUID] = {}
        self._wiped: set[int] = set()
        """Brokers with an empty disk that the store does not know yet: they cannot be running."""
        self.damaged: dict[int, str] = {}
        """Brokers with a log that they cannot serve, and the file that damages it."""
        self._seen: dict[HostedPartition, tuple[object, ...]] = {}
        """The state of each partition of a process when it was last checked."""
        self._shards: set[HostedPartition] = set()
        """Partitions in a role with a shard."""
        self.steps = 0
        self.elections = 0
        stores.shared.on_commit.append(self.committed)
        stores.on_transaction.append(self.written)

    def partition(self, topic_id: UUID, index: int) -> Partition:
        """Return the entry of a partition."""
        return self.partitions.setdefault((topic_id, index), Partition())

    # --- The store ---

    def committed(self, batch: EventBatch) -> None:
        """Check each changed partition: (2) and (3)."""
        for event in batch.events:
            key = self._keys.parse(event.key)
            if key.kind is KeyKind.TOPIC and event.value is not None:
                self.topic_ids[key.name] = read_topic(event.value.value).id
            if key.kind is KeyKind.NODE:
                self._wiped.discard(key.number)
            if key.kind is KeyKind.PARTITION:
                known = self.partition(UUID(key.name), key.number)
                if event.value is None:
                    known.stored = None
                    continue
                self._changed(known, key.name, read_partition(event.value.value, batch.revision))

    def _changed(self, known: Partition, name: str, state: PartitionImage) -> None:
        before, known.stored = known.stored, state
        if before is not None:
            if state.leader_epoch < before.leader_epoch:
                raise ViolationError(f"(2) the epoch of {name} falls: {before} -> {state}")
            is_same = (state.leader, state.broker_epoch) == (before.leader, before.broker_epoch)
            if not is_same:
                self.elections += 1
                if state.leader_epoch == before.leader_epoch:
                    raise ViolationError(f"(2) another leader, same epoch: {before} -> {state}")
                self._check_disk(known, before, state)
            for broker_id in {*before.replicas} - {*state.replicas}:
                known.removed.add(broker_id)
                known.replicas.pop(broker_id, None)
        for member in (*state.in_sync, *state.elr):
            broker = self._brokers[member.broker_id]
            if member.epoch == 0 and broker.disk.is_failing:
                known.withdrawn[member.broker_id] = broker.incarnation
        if state.is_recovering:
            known.was_unclean = True
        self.check_acknowledged(known)

    def _check_disk(self, known: Partition, before: PartitionImage, state: PartitionImage) -> None:
        """Check the disk of a new leader: (12)."""
        if state.leader < 0:
            return
        broker = self._brokers[state.leader]
        has_failed = broker.disk.is_failing and broker.is_alive
        if not has_failed or known.withdrawn.get(state.leader) != broker.incarnation:
            return
        for other in before.in_sync:
            registration = self._shared.present.get(self._keys.broker(other.broker_id))
            if (
                other.broker_id != state.leader
                and not self._brokers[other.broker_id].disk.is_failing
                and self._is_intact(other)
                and _is_created_at(registration, other.epoch)
            ):
                raise ViolationError(f"(12) elected with a failed disk: {before} -> {state}")

    def written(
        self,
        broker_id: int,
        compares: Sequence[Compare],
        operations: Sequence[Operation],
        result: TransactionResult,
    ) -> None:
        """Check the writer of each partition's state: (7)."""
        del compares
        if not result.succeeded:
            return
        for operation in operations:
            if not isinstance(operation, Put):
                continue
            if self._keys.parse(operation.key).kind is not KeyKind.PARTITION:
                continue
            mark = read_partition(operation.value, result.revision).written_by
            if mark is None:
                continue
            registration = self._shared.present.get(self._keys.broker(mark[0]))
            if mark[0] != broker_id or not _is_created_at(registration, mark[1]):
                raise ViolationError(f"(7) {operation.key} is written by {mark}: {registration}")

    # --- Acknowledged records ---

    def acknowledged(self, topic: str, index: int, offset: int) -> None:
        """A client got an acknowledgement with acks=all: (3)."""
        known = self.partition(self.topic_ids[topic], index)
        known.acknowledged_end = max(known.acknowledged_end, offset + 1)
        self.check_acknowledged(known)

    def check_acknowledged(self, known: Partition) -> None:
        """Check that each valid member of ISR and ELR has every acknowledged record."""
        state = known.stored
        if state is None or known.was_unclean or not known.acknowledged_end:
            return
        for member in (*state.in_sync, *state.elr):
            if not self._is_intact(member):
                continue
            replica = known.replicas.get(member.broker_id)
            synced = 0 if replica is None else replica.synced_offset
            if synced < known.acknowledged_end:
                raise ViolationError(
                    f"(3) acknowledged below {known.acknowledged_end}, but broker "
                    f"{member.broker_id} has synced {synced}: {state}"
                )

    def wiped(self, broker_id: int) -> None:
        """A disk was replaced: its logs are empty."""
        self._wiped.add(broker_id)
        for known in self.partitions.values():
            known.replicas.pop(broker_id, None)

    def may_wipe(self, broker_id: int) -> bool:
        """Return whether the loss of this disk is one that the cluster promises to survive.

        ISR and ELR together keep min.insync.replicas disks with every acknowledged record. So one
        less may be lost at the same time, and another member must have everything.
        """
        return all(self.may_lose(broker_id, known) for known in self.partitions.values())

    def may_lose(self, broker_id: int, known: Partition) -> bool:
        """Return whether the loss of this log is one that the cluster promises to survive."""
        state = known.stored
        if state is None or broker_id not in state.replicas:
            return True
        members = (*state.in_sync, *state.elr)
        lost = {one.broker_id for one in members if not self._is_intact(one)} | {broker_id}
        # A broker whose disk has failed leaves: the disk counts as lost until it is replaced.
        lost.update(one.id for one in self._brokers.values() if one.disk.is_failing)
        lost.update(self.damaged)
        return len(lost) < state.min_isr and any(
            one.broker_id not in lost and self._has_all(known, one) for one in members
        )

    def _is_intact(self, member: Member) -> bool:
        node = self._shared.present.get(self._keys.node(member.broker_id))
        is_valid = node is not None and member.epoch >= node.mod_revision
        return is_valid and member.broker_id not in self._wiped

    def _has_all(self, known: Partition, member: Member) -> bool:
        replica = known.replicas.get(member.broker_id)
        needed = max(known.acknowledged_end, known.committed_end)
        return self._is_intact(member) and replica is not None and replica.synced_offset >= needed

    # --- Brokers ---

    def after_turn(self, broker: SimulatedBroker) -> None:
        """Check the partitions of a broker after a turn of its loop: (1), (3), (4), (6), (8)."""
        served = broker.served
        if served is None:
            return
        self.steps += 1
        seen = self._seen
        for hosted in served.replicas:
            log, state = hosted.log, hosted.state
            now = (state, state.high_watermark, log.end_offset, log.synced_offset)
            if seen.get(hosted) == now:
                continue
            known = self.partitions.get((hosted.topic_id, hosted.name.partition))
            if known is None or known.stored is None:
                continue
            if broker.id in known.stored.replicas:
                seen[hosted] = now
                self._observe(broker, known, hosted)
        for shards in served.coordinators._served.values():
            for hosted in shards.values():
                if hosted not in self._shards and hosted.state.is_leader:
                    self._shards.add(hosted)
                    self._serves(broker, hosted)

    def _serves(self, broker: SimulatedBroker, hosted: HostedPartition) -> None:
        """Check that no other process has the shard of this epoch: (8)."""
        known = self.partition(hosted.topic_id, hosted.name.partition)
        process = (broker.id, broker.incarnation)
        other = known.shards.setdefault(hosted.state.leader_epoch, process)
        if other != process:
            raise ViolationError(
                f"(8) {process} has the shard of {hosted.name} in epoch "
                f"{hosted.state.leader_epoch}, as {other}"
            )

    def _observe(self, broker: SimulatedBroker, known: Partition, hosted: HostedPartition) -> None:
        log, state = hosted.log, hosted.state
        where = f"{hosted.name} on broker {broker.id}/{broker.incarnation}"
        replica = known.replicas.get(broker.id)
        if replica is None or (broker.id in known.removed and replica.log is not log):
            replica = known.replicas[broker.id] = Replica(broker.incarnation)
        if replica.incarnation != broker.incarnation:
            if log.end_offset < replica.kept_offset and log.problem is None:
                raise ViolationError(
                    f"{where}: synced below {replica.kept_offset}, found {log.end_offset}"
                )
            replica.incarnation, replica.state = broker.incarnation, None
        elif log.end_offset < replica.high_watermark and not known.was_unclean:
            raise ViolationError(
                f"(6) {where}: cut to {log.end_offset}, below {replica.high_watermark}"
            )
        if replica.state is state and state.high_watermark < replica.high_watermark:
            raise ViolationError(
                f"(4) {where}: high watermark {replica.high_watermark} -> {state.high_watermark}"
            )
        has_lost = log.synced_offset < replica.synced_offset
        is_new = replica.state is not state
        has_grown = log.end_offset > replica.end_offset and not is_new
        if has_grown and state.is_leader and log.latest_epoch != state.leader_epoch:
            raise ViolationError(
                f"(6) {where}: leads epoch {state.leader_epoch}, and its log grew by records of "
                f"epoch {log.latest_epoch}"
            )
        replica.state, replica.log, replica.high_watermark = state, log, state.high_watermark
        assert broker.served is not None
        replica.home = broker.served.storage.manager.home_of(hosted.name)
        replica.end_offset, replica.synced_offset = log.end_offset, log.synced_offset
        if state.is_leader:
            self._leads(broker, known, hosted, where, is_new=is_new)
        if has_lost:
            self.check_acknowledged(known)

    def _leads(
        self,
        broker: SimulatedBroker,
        known: Partition,
        hosted: HostedPartition,
        where: str,
        *,
        is_new: bool,
    ) -> None:
        state = hosted.state
        if is_new:
            leader = (broker.id, broker.incarnation if self._has_elections else 0)
            other = known.leaders.setdefault(state.leader_epoch, leader)
            if other != leader:
                raise ViolationError(f"(1) {where} leads epoch {state.leader_epoch} of {other}")
            is_newest = known.stored is not None and (
                state.leader_epoch == known.stored.leader_epoch
            )
            if is_newest and hosted.log.end_offset < known.committed_end and not known.was_unclean:
                raise ViolationError(
                    f"(4) {where} leads with {hosted.log.end_offset}, {known.committed_end} was "
                    "committed"
                )
        known.committed_end = max(known.committed_end, state.high_watermark)

    # --- Equal logs ---

    def compare_logs(self) -> None:
        """Compare the logs of all running brokers below their smallest high watermark: (5)."""
        for (topic_id, index), known in self.partitions.items():
            found = []
            for broker in self._brokers.values():
                served = broker.served
                hosted = None if served is None else served.replicas.find(topic_id.bytes, index)
                if hosted is not None and hosted.log.problem is None:
                    found.append((broker.id, hosted))
            if len(found) > 1 and not known.was_unclean:
                self._compare(known, found)

    def _compare(self, known: Partition, found: list[tuple[int, HostedPartition]]) -> None:
        end = min(hosted.state.high_watermark for _, hosted in found)
        begin = max(known.compared_end, *(hosted.log.log_start_offset for _, hosted in found))
        if begin >= end:
            return
        texts = {one: log_bytes(hosted.log, begin, end) for one, hosted in found}
        first = next(iter(texts.values()))
        for one, text in texts.items():
            if text != first:
                raise ViolationError(f"(5) {found[0][1].name}: broker {one} differs below {end}")
        known.compared_end = end


def log_bytes(log: PartitionLog, begin: int, end: int) -> bytes:
    """Return the stored bytes of a log between two offsets."""
    parts = []
    offset = begin
    while offset < end:
        read = log.read(
            offset, COMPARED_BYTES_MAX, offset_limit=end, at_least_one=True, nowait=False
        )
        data = bytes(read.records)
        if not data:
            break
        parts.append(data)
        offset = _next_offset(data)
    return b"".join(parts)


def _next_offset(data: bytes) -> int:
    position, offset = 0, 0
    while position + 61 <= len(data):
        base = int.from_bytes(data[position : position + 8], "big", signed=True)
        length = int.from_bytes(data[position + 8 : position + 12], "big")
        offset = base + int.from_bytes(data[position + 23 : position + 27], "big") + 1
        position += 12 + length
    return offset


def _is_created_at(pair: KeyValue | None, revision: int) -> bool:
    return pair is not None and pair.create_revision == revision
