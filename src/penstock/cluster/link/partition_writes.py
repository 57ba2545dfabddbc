"""Writes of partition states by the brokers that have the replicas, as transactions. Pure.

A leader changes the in-sync replicas of its partitions; a broker notes that it cannot serve a
replica. Each transaction compares the revision of each partition, the registration of the writer,
and, for each follower that joins, the last revision of its registration and of its disk: a follower
that has restarted, drains or has lost its disk does not join.

Every compare is of a revision, and revisions never return: a transaction whose compares failed once
cannot be applied later. So after a lost answer the same transaction is sent again. The value has
the mark of the writer: a state with the mark is the writer's own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from penstock.cluster import values
from penstock.cluster.controller import PARTITIONS_PER_TRANSACTION, GuardedWrites
from penstock.cluster.image import (
    BrokerState,
    MetadataImage,
    PartitionImage,
    Replica,
    WriteMark,
)
from penstock.cluster.keys import Keys
from penstock.cluster.stores.port import Compare, KeyValue, Operation, Put
from penstock.core.errors import StoreError
from penstock.core.limits import STORE_COMPARES_MAX


@dataclass(frozen=True, slots=True)
class PartitionWrite:
    """A change of one partition's state by a broker that has a replica of it."""

    topic_id: UUID
    index: int
    before: PartitionImage
    """The state that the change was decided on; its partition epoch is compared."""
    after: PartitionImage
    added: tuple[int, ...] = ()
    """Followers that join the in-sync replicas."""


class MarkedWrite(NamedTuple):
    """A change that may be written, with its compares."""

    number: int
    """Its place in the request."""
    key: str
    compares: tuple[Compare, ...]
    state: PartitionImage
    """With the mark of the writer."""


def marked(
    keys: Keys, image: MetadataImage, write: PartitionWrite, number: int, mark: WriteMark
) -> MarkedWrite | None:
    """Return the change with its compares; None if the image shows that it must not be written.

    A leader writes only in the registration that it was elected with, and only running followers
    join, with the registration that the image has.
    """
    after = write.after
    is_leader = after.leader == mark.broker_id
    if is_leader and after.broker_epoch != mark.epoch:
        return None
    key = keys.partition(write.topic_id, write.index)
    compares = [Compare.unchanged(key, write.before.partition_epoch)]
    in_sync = frozenset(after.in_sync)
    for broker_id in write.added:
        broker, node = image.brokers.get(broker_id), image.nodes.get(broker_id)
        if broker is None or node is None or broker.state is not BrokerState.RUNNING:
            return None
        if Replica(broker_id, broker.epoch) not in in_sync:
            return None
        compares.append(Compare.unchanged(keys.broker(broker_id), broker.revision))
        compares.append(Compare.unchanged(keys.node(broker_id), node.revision))
    return MarkedWrite(number, key, tuple(compares), after._replace(written_by=mark))


def transactions(
    writes: Iterable[MarkedWrite], guard: Compare, *, count_max: int = PARTITIONS_PER_TRANSACTION
) -> Iterator[tuple[GuardedWrites, tuple[MarkedWrite, ...]]]:
    """Yield transactions of at most `count_max` partitions, each with its changes."""
    compares: dict[Compare, None] = {guard: None}
    few: list[MarkedWrite] = []
    for write in writes:
        needed = dict.fromkeys(write.compares)
        if few and (len(few) == count_max or len(compares | needed) > STORE_COMPARES_MAX):
            yield _transaction(compares, few)
            compares, few = {guard: None}, []
        compares |= needed
        few.append(write)
    if few:
        yield _transaction(compares, few)


def _transaction(
    compares: Iterable[Compare], few: list[MarkedWrite]
) -> tuple[GuardedWrites, tuple[MarkedWrite, ...]]:
    puts: tuple[Operation, ...] = tuple(
        Put(write.key, values.write_partition(write.state)) for write in few
    )
    return GuardedWrites(tuple(compares), puts), tuple(few)


def own_states(found: Iterable[KeyValue], writes: Iterable[MarkedWrite]) -> dict[int, int]:
    """Return the revisions of the changes that the store has, by number: they have their mark."""
    marks = {write.key: write for write in writes}
    landed = {}
    for pair in found:
        write = marks[pair.key]
        try:
            state = values.read_partition(pair.value, pair.mod_revision)
        except StoreError:
            # A newer broker has written it.
            continue
        if state.written_by == write.state.written_by:
            landed[write.number] = pair.mod_revision
    return landed
