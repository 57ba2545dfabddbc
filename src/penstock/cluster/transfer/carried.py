"""The metadata that a transfer carries, and its values at the destination. Pure.

Everything that a broker or an administrator has stored is carried: topics with their ids, settings
and leader epochs, settings of groups and brokers, quotas, access rules, users, the secret of
logins, declared topics, producer ids, and levels of features. NOT carried are keys bound to a
session, the disks of brokers, and partitions that no topic publishes. A key of an unknown kind, or
a value that cannot be read, is an error: nothing is dropped silently.

A partition at the destination has one replica, that of the transferred broker.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from penstock.cluster import values
from penstock.cluster.changes import apply
from penstock.cluster.controller import MIN_ISR
from penstock.cluster.elections import NO_LEADER
from penstock.cluster.features.levels import SUPPORTED, highest_levels, unsupported_level
from penstock.cluster.image import MetadataImage, PartitionImage, similar_name
from penstock.cluster.keys import KeyKind, Keys
from penstock.cluster.link.interpretation import interpret
from penstock.cluster.stores.port import Event, KeyValue, Put, Snapshot
from penstock.core.errors import StoreError

_AS_IT_IS: Final = frozenset(
    {
        KeyKind.TOPIC,
        KeyKind.TOPIC_SETTINGS,
        KeyKind.GROUP_SETTINGS,
        KeyKind.BROKER_SETTINGS,
        KeyKind.QUOTAS,
        KeyKind.ACL,
        KeyKind.ACL_REMOVAL,
        KeyKind.SCRAM,
        KeyKind.PRODUCER_IDS,
    }
)
"""Kinds whose value is the same at the destination."""
_NEW_AT_DESTINATION: Final = frozenset(
    {
        KeyKind.FORMAT,
        KeyKind.CLUSTER_ID,
        KeyKind.PARTITION,
        KeyKind.NAME,
        KeyKind.FEATURES,
        KeyKind.BROKER,
        KeyKind.NODE,
        KeyKind.CONTROLLER,
        KeyKind.CREATING,
    }
)
"""Kinds that are written anew, or that belong to processes which have ended."""


class Carried(NamedTuple):
    """The metadata of a cluster, ready for another store."""

    image: MetadataImage
    same: tuple[tuple[str, bytes], ...]
    """Keys below the root whose values do not change, with the values."""

    def counts(self) -> dict[str, int]:
        """Return the number of objects by kind, for a report."""
        image = self.image
        return {
            "topics": len(image.topics),
            "partitions": image.partition_count,
            "users": len({user for _, user in image.scram}),
            "access rules": len(image.acls),
            "quotas": len(image.quotas),
            "settings of groups": len(image.groups),
            "settings of brokers": len(image.broker_settings),
        }


def carried(keys: Keys, snapshot: Snapshot) -> Carried:
    """Return the metadata of a store, which has all keys below the root; raise for an unknown."""
    same = [
        (pair.key.removeprefix(keys.root), pair.value)
        for pair in snapshot.values
        if _is_same(keys, pair)
    ]
    events = (Event(pair.key, pair) for pair in snapshot.values)
    image = apply(MetadataImage(), interpret(keys, events), snapshot.revision)
    if not image.cluster_id:
        raise StoreError("the metadata has no cluster id: no broker has used it yet")
    problem = unsupported_level(image.features.levels, SUPPORTED)
    if problem is not None:
        raise StoreError(problem)
    return Carried(image, tuple(same))


def _is_same(keys: Keys, pair: KeyValue) -> bool:
    """Return whether a key is carried as it is; raise an error for an unknown one."""
    if not pair.key.startswith(keys.root):
        raise StoreError(f"the key {pair.key} belongs to no cluster that Penstock knows")
    kind = keys.parse(pair.key).kind
    if kind in _AS_IT_IS:
        return True
    if kind in _NEW_AT_DESTINATION or pair.key == keys.transfer():
        return False
    if pair.key.startswith(keys.declarations()):
        values.read_declared(pair.value)
        return True
    if pair.key in {keys.adopted(), keys.login_secret()}:
        return True
    raise StoreError(
        f"the key {pair.key} is of a kind that this version of Penstock does not know: nothing is "
        "moved, so that nothing is lost. Use the newer Penstock that wrote it"
    )


def into_cluster(
    found: Carried, keys: Keys, broker_id: int, disk_revision: int
) -> Iterator[tuple[str, bytes]]:
    """Yield the keys and values of a cluster in which this broker has all replicas.

    `disk_revision` is that of the key `nodes/<id>`: the entry of the broker among the in-sync
    replicas is valid. No broker leads yet: the broker's start elects it, in the next leader epoch.
    """
    yield from _common(found, keys, broker_id, NO_LEADER, disk_revision)
    levels = {**highest_levels(SUPPORTED), **found.image.features.levels}
    yield keys.features(), values.write_features(levels)


def into_directory(found: Carried, keys: Keys, broker_id: int) -> Iterator[tuple[str, bytes]]:
    """Yield the keys and values of a broker that is alone and leads everything."""
    yield from _common(found, keys, broker_id, broker_id, 0)
    if found.image.features.revision:
        yield keys.features(), values.write_features(found.image.features.levels)


def _common(
    found: Carried, keys: Keys, broker_id: int, leader: int, epoch: int
) -> Iterator[tuple[str, bytes]]:
    adopted = keys.adopted().removeprefix(keys.root)
    for below, value in found.same:
        if below != adopted:
            yield f"{keys.root}{below}", value
    # The logs of the directory are known: a start must not adopt them.
    yield keys.adopted(), values.write_adopted()
    for topic in found.image.topics.values():
        similar = similar_name(topic.name)
        if similar is not None:
            yield keys.name(similar), values.write_name(topic.name)
        for index, state in enumerate(topic.partitions):
            alone = PartitionImage(
                (broker_id,),
                leader,
                state.leader_epoch,
                (broker_id,),
                0,
                isr_epochs=(epoch,),
                min_isr=state.min_isr,
            )
            yield keys.partition(topic.id, index), values.write_partition(alone)


def replicas_elsewhere(image: MetadataImage, broker_id: int) -> list[str]:
    """Return the partitions that another broker has a replica of, as text."""
    return [
        f"{topic.name}-{index}"
        for topic in image.topics.values()
        for index, state in enumerate(topic.partitions)
        if {*state.replicas, *state.isr} != {broker_id}
    ]


def short_of_replicas(image: MetadataImage, defaults: Mapping[str, str]) -> list[str]:
    """Return the topics whose `min.insync.replicas` is above the one replica of a transfer."""
    return sorted(
        topic.name
        for topic in image.topics.values()
        if int({**defaults, **topic.settings}.get(MIN_ISR, "1")) > 1
    )


def in_batches(
    pairs: Iterable[tuple[str, bytes]], count_max: int, bytes_max: int
) -> Iterator[tuple[Put, ...]]:
    """Yield the writes of one transaction after the other."""
    batch: list[Put] = []
    size = 0
    for key, value in pairs:
        if batch and (len(batch) == count_max or size + len(key) + len(value) > bytes_max):
            yield tuple(batch)
            batch, size = [], 0
        batch.append(Put(key, value))
        size += len(key) + len(value)
    if batch:
        yield tuple(batch)
