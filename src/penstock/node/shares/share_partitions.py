"""`SharePartitions`: the share-partitions and share sessions of this broker.

A share-partition is loaded at the first fetch of a member, and dropped when the last session of its
group on this broker ends, or when another broker leads the partition. So memory is bounded by the
sessions and by the records in flight, not by groups or topics. It decides nothing about records.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from penstock.broker.share_sessions.share_session_table import (
    SharePartitionId,
    ShareSession,
    ShareSessions,
)
from penstock.cluster.configs.group_configs import (
    DeliverySettings,
    GroupRules,
    delivery_settings,
    group_rules,
)
from penstock.cluster.configs.topic_routing import topic_routing
from penstock.cluster.image import MetadataImage
from penstock.coordinator.shares.ports import ShareKey
from penstock.core.cancellation import Cancellation
from penstock.core.settings.coordinator_settings import GroupsSettings
from penstock.core.settings.topic_declarations import BUFFER_SIZE
from penstock.node.shares.letter_desk import NO_LETTERS, LetterDesk
from penstock.node.shares.live_partition import LivePartition
from penstock.node.shares.state_calls import StateCalls
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.manager import ReplicaManager

_GROUPS_KNOWN_MAX: Final = 2_000
"""Groups whose settings are kept: one for each share session."""


class GroupDeliveries:
    """The settings of deliveries of each group; computed again when a setting has changed."""

    def __init__(
        self, image: Callable[[], MetadataImage], settings: Callable[[], GroupsSettings]
    ) -> None:
        self._image = image
        self._settings = settings
        self._given = settings()
        self._rules: GroupRules = group_rules(self._given)
        self._known: dict[str, tuple[Mapping[str, str], DeliverySettings]] = {}

    def of(self, group: str) -> DeliverySettings:
        """Return the settings in force of a group."""
        given = self._settings()
        if given is not self._given:
            self._given, self._rules = given, group_rules(given)
            self._known.clear()
        overrides = self._image().group_settings(group)
        known = self._known.get(group)
        if known is None or known[0] is not overrides:
            if len(self._known) >= _GROUPS_KNOWN_MAX:
                self._known.clear()
            known = (overrides, delivery_settings(overrides, self._rules))
            self._known[group] = known
        return known[1]

    def of_topic(self, group: str, name: str) -> DeliverySettings:
        """Return the settings in force of a group for one topic, which may bound the buffer."""
        settings, topic = self.of(group), self._image().topic(name)
        if topic is None or BUFFER_SIZE not in topic.settings:
            return settings
        size = topic_routing(topic.settings).buffer_size
        if size is None:
            return settings
        most = min(settings.record_locks_max, max(1, size // len(topic.partitions)))
        return settings._replace(record_locks_max=most, is_buffer_bound=True)

    def forget(self, group: str) -> None:
        """Forget a group that has no members here."""
        self._known.pop(group, None)


class SharePartitions:
    """`broker.share_sessions.share_ports.ShareGroups` on this node."""

    def __init__(
        self,
        calls: StateCalls,
        replicas: ReplicaManager,
        deliveries: GroupDeliveries,
        sessions: ShareSessions,
        desk: LetterDesk = NO_LETTERS,
    ) -> None:
        self.sessions = sessions
        self.desk = desk
        self._calls = calls
        self._replicas = replicas
        self._deliveries = deliveries
        self._live: dict[str, dict[SharePartitionId, LivePartition]] = {}
        """By group."""
        self._clients: dict[tuple[str, str], tuple[ShareSession, Cancellation]] = {}
        """By group and member: the session, and the connection that ends it."""

    def __len__(self) -> int:
        return sum(len(group) for group in self._live.values())

    def by_group(self) -> Iterator[tuple[str, tuple[LivePartition, ...]]]:
        """Yield each group with its share-partitions on this broker."""
        for group, lives in tuple(self._live.items()):
            yield group, tuple(lives.values())

    def settings_of(self, group: str) -> DeliverySettings:
        """Return the settings in force of a group."""
        return self._deliveries.of(group)

    def find(self, group: str, partition: SharePartitionId) -> LivePartition | None:
        """Return a share-partition that was opened and is led here."""
        live = self._live.get(group, {}).get(partition)
        return None if live is None or live.problem is not None else live

    def open(
        self, group: str, partition: SharePartitionId, hosted: HostedPartition
    ) -> LivePartition:
        """Return a share-partition; it is loaded if it is new."""
        live = self._live.get(group, {}).get(partition)
        if live is not None and live.hosted is hosted and live.problem is None:
            live.revive()
            live.confirm()
            if live.problem is None:
                return live
        before = live
        live = LivePartition(
            ShareKey(group, partition.topic_id, partition.partition),
            hosted,
            self._calls,
            self._replicas,
            lambda: self._deliveries.of_topic(group, hosted.name.topic),
            self._ended,
            self.desk,
        )
        self._live.setdefault(group, {})[partition] = live
        live.load()
        if before is not None:
            before.leave()
        return live

    def _ended(self, live: LivePartition) -> None:
        """Drop a share-partition that is of no use any more."""
        key = live.key
        group = self._live.get(key.group_id, {})
        place = SharePartitionId(key.topic_id, key.partition)
        if group.get(place) is live:
            del group[place]
            if not group:
                self._live.pop(key.group_id, None)
                self.desk.forget(key.group_id)

    # --- Sessions ---

    def follow(self, session: ShareSession, client: Cancellation | None) -> None:
        """Close a new session when its client disconnects."""
        self._unfollow(session)
        if client is not None:
            self._clients[session.group, session.member] = (session, client)
            client.subscribe(session, lambda: self.close(session))
            if client.is_cancelled:
                # A wide request is handled late: no listener is called any more.
                self.close(session)

    def _unfollow(self, session: ShareSession) -> None:
        """Forget the connection of the member's session."""
        followed = self._clients.pop((session.group, session.member), None)
        if followed is not None:
            before, client = followed
            client.unsubscribe(before)

    def close(self, session: ShareSession) -> None:
        """End a session, and release the records of its member."""
        if not self.sessions.close(session):
            return
        self._unfollow(session)
        group = self._live.get(session.group, {})
        held = tuple(group) if session.held is None else session.held
        for partition in held:
            live = group.get(partition)
            if live is not None:
                live.release(session.member)
        if not self.sessions.has_group(session.group):
            self._drop(session.group)

    def _drop(self, group: str) -> None:
        """Forget the share-partitions of a group; a write that is under way still ends."""
        for live in tuple(self._live.get(group, {}).values()):
            live.retire()
        self._deliveries.forget(group)

    def stop(self) -> None:
        """Cancel all timers: the broker stops."""
        for group in self._live.values():
            for live in group.values():
                live.stop()
