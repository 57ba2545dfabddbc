"""`GroupState`: the state that the parts of a group shard share.

Replicated state is changed by `replay` alone: `offsets`, `stored_classic`, `consumer`, `share`. The
live classic groups in `classic` are soft state: a classic group is written only when a generation
is complete, as in Kafka, so a rebalance that was under way is NOT remembered after a crash.
`loaded` creates the live groups from the stored ones.

Owners: the packages `offsets`, `classic` (also of `stored_classic`), `consumer` and `share`. A part
reads the tables of the others, and changes them only through their owner.
"""

from collections.abc import Callable
from uuid import UUID

from penstock.coordinator.groups.settings import GroupSettings, SameTimes
from penstock.coordinator.groups.state.any_group import CommitClaim, Group, OffsetExpiry
from penstock.coordinator.groups.state.classic_group import ClassicGroup
from penstock.coordinator.groups.state.offset_store import OffsetStore
from penstock.coordinator.metadata_view import TopicsView, TopicView
from penstock.coordinator.ports import GroupTimes
from penstock.protocol.stored.group_records import GroupMetadataValue

__all__ = ["CommitClaim", "Group", "GroupState", "NoTopics", "OffsetExpiry"]


class NoTopics:
    """The view before the first image: there are no topics."""

    revision = -1

    def by_name(self, name: str) -> TopicView | None:  # noqa: ARG002 - the port's signature
        """No topic has this name."""
        return None

    def by_id(self, topic_id: UUID) -> TopicView | None:  # noqa: ARG002 - the port's signature
        """No topic has this id."""
        return None

    def names(self) -> tuple[str, ...]:
        """No names."""
        return ()


class GroupState:
    """The tables of one shard."""

    def __init__(
        self,
        settings: GroupSettings,
        member_ids: Callable[[], str],
        offsets: OffsetStore,
        times: GroupTimes | None = None,
        all_classic_bytes: Callable[[], int] | None = None,
    ) -> None:
        self.settings = settings
        self.times: GroupTimes = times or SameTimes(settings)
        """Times of groups with settings of their own; without it all groups have the same."""
        self.new_id = member_ids
        """Returns a new random id (a UUID as text) each time; the only randomness here."""
        self.topics: TopicsView = NoTopics()
        """The cluster's topics as last reported."""
        self.offsets = offsets
        """Replicated: committed and pending offsets of all groups, also of simple consumers."""
        self.stored_classic: dict[str, GroupMetadataValue] = {}
        """Replicated: each classic group as last written; absent: never written, or deleted."""
        self.consumer: dict[str, Group] = {}
        """Replicated: groups of KIP-848. The package `consumer` keeps its own typed view of it."""
        self.share: dict[str, Group] = {}
        """Replicated: share groups. The package `share` keeps its own typed view of it."""
        self.classic: dict[str, ClassicGroup] = {}
        """Soft: the live classic groups, also empty ones of simple consumers. Changed through
        `keep_classic` and `drop_classic`, so that their metadata is counted."""
        self.classic_bytes = 0
        """Metadata of the members of all groups in `classic`, and of the records of groups."""
        self.all_classic_bytes = all_classic_bytes or (lambda: self.classic_bytes)
        """The same over all shards of the coordinator."""

    def keep_classic(self, group: ClassicGroup) -> None:
        """Add a live classic group."""
        assert group.group_id not in self.classic
        self.classic[group.group_id] = group
        self.classic_bytes += group.metadata_bytes
        group.on_metadata = self._count_classic

    def drop_classic(self, group_id: str) -> ClassicGroup | None:
        """Remove a live classic group, if there is one of this name."""
        group = self.classic.pop(group_id, None)
        if group is not None:
            group.on_metadata = None
            self.classic_bytes -= group.metadata_bytes
        return group

    def _count_classic(self, more_bytes: int) -> None:
        self.classic_bytes += more_bytes

    def find(self, group_id: str) -> Group | None:
        """The group of this name, whatever its protocol."""
        group = self.consumer.get(group_id)
        if group is None:
            group = self.classic.get(group_id)
        return self.share.get(group_id) if group is None else group
