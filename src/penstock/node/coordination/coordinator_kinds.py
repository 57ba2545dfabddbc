"""The parts of the group, transaction and share coordinators: topic, record format, shard.

Imported, with its own imports, at the first client request for a coordinator. It decides nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TypeVar
from uuid import uuid4

from penstock.cluster.configs.group_configs import (
    ASSIGNMENT_INTERVAL,
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    SHARE_ASSIGNMENT_INTERVAL,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_SESSION_TIMEOUT,
    group_rules,
    value_in_force,
)
from penstock.cluster.controller import MIN_ISR, NewTopic, known_brokers
from penstock.cluster.image import NO_SETTINGS, MetadataImage
from penstock.cluster.moves.internal_topics import REPLICAS_MAX
from penstock.coordinator.groups.settings import MINUTE_MS, GroupSettings
from penstock.coordinator.groups.shard import GroupShard
from penstock.coordinator.kinds import TOPICS
from penstock.coordinator.ports import ConsumerTimes, Effects
from penstock.coordinator.shard import Shard
from penstock.coordinator.shares.settings import ShareSettings
from penstock.coordinator.shares.shard import ShareShard
from penstock.coordinator.transactions.settings import TransactionSettings
from penstock.coordinator.transactions.shard import TransactionShard
from penstock.core.settings.coordinator_settings import GroupsSettings, TransactionsSettings
from penstock.core.settings.share_coordinator_settings import SharesSettings
from penstock.core.settings.tree import Settings
from penstock.node.coordination.journal import Decode
from penstock.protocol.stored.codec import (
    decode_group_record,
    decode_share_record,
    decode_transaction_record,
)

Shared = TypeVar("Shared", GroupSettings, TransactionSettings, ShareSettings)


class ImageGroupTimes:
    """`coordinator.ports.GroupTimes` over the newest image: changes are in force at once."""

    def __init__(self, settings: GroupsSettings, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self.follow(settings)

    def follow(self, settings: GroupsSettings) -> None:
        """Change the default times of groups, and the bounds of all."""
        self._rules = group_rules(settings)
        self._default = self._times(NO_SETTINGS)
        self._share_default = self._share_times(NO_SETTINGS)

    def of(self, group_id: str) -> ConsumerTimes:
        """Return the times of this consumer group now."""
        group = self._image().groups.get(group_id)
        return self._default if group is None else self._times(group.settings)

    def of_share(self, group_id: str) -> ConsumerTimes:
        """Return the times of this share group now."""
        group = self._image().groups.get(group_id)
        return self._share_default if group is None else self._share_times(group.settings)

    def _times(self, overrides: Mapping[str, str]) -> ConsumerTimes:
        return ConsumerTimes(
            value_in_force(SESSION_TIMEOUT, overrides, self._rules),
            value_in_force(HEARTBEAT_INTERVAL, overrides, self._rules),
            value_in_force(ASSIGNMENT_INTERVAL, overrides, self._rules),
        )

    def _share_times(self, overrides: Mapping[str, str]) -> ConsumerTimes:
        return ConsumerTimes(
            value_in_force(SHARE_SESSION_TIMEOUT, overrides, self._rules),
            value_in_force(SHARE_HEARTBEAT_INTERVAL, overrides, self._rules),
            value_in_force(SHARE_ASSIGNMENT_INTERVAL, overrides, self._rules),
        )


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of coordinator: its topic, and how its shards are created."""

    new_topic: NewTopic
    decode: Decode
    make_shard: Callable[[int, int], Shard]
    """Returns a new shard, by its coordinator epoch and its partition of the internal topic."""
    effects: Effects
    follow: Callable[[Settings], None]
    """Apply other settings to the shards, starting with their next event."""
    reply_ms_max: int | None = None
    """Longest wait of a reply for followers; None: the journal knows it."""


def group_kind(
    settings: GroupsSettings,
    image: Callable[[], MetadataImage],
    shards: Callable[[], Iterable[Shard]],
    effects: Effects,
) -> Kind:
    """Return the kind for groups, over `__consumer_offsets`; `image` has the groups' settings.

    `shards` returns all shards that this broker has now: the metadata of their groups has one
    bound.
    """
    times = ImageGroupTimes(settings, image)
    shared = _group_settings(settings)

    def classic_bytes() -> int:
        return sum(one.state.classic_bytes for one in shards() if isinstance(one, GroupShard))

    def follow(changed: Settings) -> None:
        times.follow(changed.groups)
        _take_over(shared, _group_settings(changed.groups))

    return Kind(
        NewTopic(
            name=TOPICS["group"],
            partition_count=settings.offsets_partitions,
            settings={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.offsets_segment_bytes),
            },
        ),
        decode_group_record,
        lambda _epoch, _partition: GroupShard(shared, lambda: str(uuid4()), times, classic_bytes),
        effects,
        follow,
    )


def _group_settings(settings: GroupsSettings) -> GroupSettings:
    return GroupSettings(
        offset_metadata_characters_max=settings.offset_metadata_bytes_max,
        offsets_retention_ms=settings.offsets_retention_minutes * MINUTE_MS,
        offsets_retention_check_interval_ms=settings.offsets_retention_check_interval_ms,
        initial_rebalance_delay_ms=settings.initial_rebalance_delay_ms,
        session_timeout_ms_min=settings.session_timeout_ms_min,
        session_timeout_ms_max=settings.session_timeout_ms_max,
        classic_group_members_max=settings.members_max,
        consumer_session_timeout_ms=settings.consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms=settings.consumer_heartbeat_interval_ms,
        consumer_assignment_interval_ms=settings.consumer_assignment_interval_ms,
        consumer_regex_refresh_interval_ms=settings.consumer_regex_refresh_interval_ms,
        consumer_group_members_max=settings.consumer_members_max,
        consumer_migration_policy=settings.consumer_migration_policy,
        share_session_timeout_ms=settings.share_session_timeout_ms,
        share_heartbeat_interval_ms=settings.share_heartbeat_interval_ms,
        share_assignment_interval_ms=settings.share_assignment_interval_ms,
        share_group_members_max=settings.share_members_max,
    )


def transaction_kind(settings: TransactionsSettings, effects: Effects) -> Kind:
    """Return the kind for transactions, over `__transaction_state`."""
    shared = _transaction_settings(settings)
    return Kind(
        NewTopic(
            name=TOPICS["transaction"],
            partition_count=settings.state_partitions,
            settings={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "segment.bytes": str(settings.state_segment_bytes),
            },
        ),
        decode_transaction_record,
        lambda epoch, _partition: TransactionShard(shared, epoch),
        effects,
        lambda changed: _take_over(shared, _transaction_settings(changed.transactions)),
    )


def _transaction_settings(settings: TransactionsSettings) -> TransactionSettings:
    return TransactionSettings(
        timeout_ms_max=settings.timeout_ms_max,
        id_expiration_ms=settings.id_expiration_ms,
        timeout_check_interval_ms=settings.timeout_check_interval_ms,
        expiration_check_interval_ms=settings.expiration_check_interval_ms,
    )


def share_kind(settings: SharesSettings, effects: Effects) -> Kind:
    """Return the kind for the state of share groups, over `__share_group_state`.

    The topic is never compacted, and no record is deleted by its age or by the size of the log: the
    shard asks for the deletion of records that it does not need.
    """
    shared = _share_settings(settings)
    return Kind(
        NewTopic(
            name=TOPICS["share"],
            partition_count=settings.state_partitions,
            settings={
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "retention.bytes": "-1",
                "retention.ms": "-1",
                "segment.bytes": str(settings.state_segment_bytes),
            },
        ),
        decode_share_record,
        lambda _epoch, partition: ShareShard(shared, partition),
        effects,
        lambda changed: _take_over(shared, _share_settings(changed.shares)),
        settings.write_timeout_ms,
    )


def _share_settings(settings: SharesSettings) -> ShareSettings:
    return ShareSettings(
        updates_per_snapshot=settings.updates_per_snapshot,
        cold_snapshot_interval_ms=settings.cold_snapshot_interval_ms,
        prune_interval_ms=settings.prune_interval_ms,
    )


def replicated(topic: NewTopic, image: MetadataImage, replicas_max: int = REPLICAS_MAX) -> NewTopic:
    """Return an internal topic for a cluster: with a replica on each known broker, up to 3.

    Brokers that are down count: a topic created in a rolling restart would else lack replicas.
    """
    factor = max(1, min(replicas_max, len(known_brokers(image))))
    settings = dict(topic.settings)
    if factor >= REPLICAS_MAX:
        settings[MIN_ISR] = str(factor - 1)
    return replace(topic, replication_factor=factor, settings=settings)


def _take_over(shared: Shared, changed: Shared) -> None:
    """Copy the values of `changed` into the object that shards share."""
    for one in fields(shared):
        setattr(shared, one.name, getattr(changed, one.name))
