"""`GroupSettings`: the settings of a group coordinator, with Kafka 4.3's defaults.

All shards of a coordinator share one object, whose owner may change it between two events; a shard
reads it when it needs it and keeps no copy. `settings.tree` reads the values (file, environment,
flags), and the number of partitions of the offsets topic is NOT known to a shard.
"""

from dataclasses import dataclass
from typing import Final

from penstock.coordinator.ports import ConsumerTimes

MINUTE_MS: Final = 60_000


@dataclass(slots=True, kw_only=True)
class GroupSettings:
    """Every setting of the group coordinator; Kafka's name is in each docstring."""

    # --- Offsets ---

    offset_metadata_characters_max: int = 4_096
    """offset.metadata.max.bytes; Kafka counts characters too."""
    offsets_retention_ms: int = 7 * 24 * 60 * MINUTE_MS
    """offsets.retention.minutes."""
    offsets_retention_check_interval_ms: int = 10 * MINUTE_MS
    """offsets.retention.check.interval.ms."""

    # --- Classic groups ---

    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms: a new group waits this long for more members."""
    session_timeout_ms_min: int = 6_000
    """group.min.session.timeout.ms."""
    session_timeout_ms_max: int = 30 * MINUTE_MS
    """group.max.session.timeout.ms."""
    classic_group_members_max: int = 2_147_483_647
    """group.max.size."""
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    """No setting in Kafka either: how long a member that joins for the first time may wait."""

    # --- Consumer groups (KIP-848) ---

    consumer_session_timeout_ms: int = 45_000
    """group.consumer.session.timeout.ms."""
    consumer_heartbeat_interval_ms: int = 5_000
    """group.consumer.heartbeat.interval.ms."""
    consumer_group_members_max: int = 2_147_483_647
    """group.consumer.max.size."""
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """group.consumer.assignors, the first is the default."""
    consumer_assignment_interval_ms: int = 1_000
    """group.consumer.assignment.interval.ms: a target assignment is not computed more often."""
    consumer_migration_policy: str = "bidirectional"
    """group.consumer.migration.policy: disabled, upgrade, downgrade or bidirectional."""
    consumer_regex_refresh_interval_ms: int = 10 * MINUTE_MS
    """group.consumer.regex.refresh.interval.ms."""

    # --- Share groups (KIP-932) ---

    share_session_timeout_ms: int = 45_000
    """group.share.session.timeout.ms."""
    share_heartbeat_interval_ms: int = 5_000
    """group.share.heartbeat.interval.ms."""
    share_assignment_interval_ms: int = 1_000
    """group.share.assignment.interval.ms."""
    share_group_members_max: int = 200
    """group.share.max.size."""


class SameTimes:
    """`ports.GroupTimes` where no group has settings of its own."""

    def __init__(self, settings: GroupSettings) -> None:
        self._times = ConsumerTimes(
            settings.consumer_session_timeout_ms,
            settings.consumer_heartbeat_interval_ms,
            settings.consumer_assignment_interval_ms,
        )
        self._share_times = ConsumerTimes(
            settings.share_session_timeout_ms,
            settings.share_heartbeat_interval_ms,
            settings.share_assignment_interval_ms,
        )

    def of(self, group_id: str) -> ConsumerTimes:  # noqa: ARG002 - the port's signature
        """The same times for all consumer groups."""
        return self._times

    def of_share(self, group_id: str) -> ConsumerTimes:  # noqa: ARG002 - the port's signature
        """The same times for all share groups."""
        return self._share_times
