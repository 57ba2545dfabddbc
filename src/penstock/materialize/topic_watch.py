"""`TopicWatch`: compares topics of the file with the cluster, and carries out the decisions.

It begins tables, begins new generations, and adds partitions. `topic_decisions` decides; this
module asks the cluster and writes the file. It belongs to the follower's thread. It does NOT read
records.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from penstock.client.calls import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from penstock.client.cluster import Cluster
from penstock.client.cluster_view import TopicDescription
from penstock.core.errors import BrokerAnswerError
from penstock.core.types import TopicPartition
from penstock.materialize.index_columns import IndexColumn
from penstock.materialize.row_store import RowStore
from penstock.materialize.snapshot_loading import (
    LogBounds,
    OpenedSnapshot,
    is_unfinished,
    load_snapshot,
)
from penstock.materialize.topic_decisions import Action, Decision, StoredTopic, TopicState, decide
from penstock.protocol.error_codes import ErrorCode

_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class TopicWatch:
    """The topics of one service."""

    def __init__(
        self,
        cluster: Cluster,
        store: RowStore,
        columns: Mapping[str, Sequence[IndexColumn]],
        *,
        on_recreate: str,
        wants_refresh: bool,
        snapshots: Mapping[str, OpenedSnapshot] | None = None,
    ) -> None:
        """`snapshots` replace the rows of their topics at the first look."""
        self._cluster = cluster
        self._store = store
        self._columns = columns
        self._on_recreate = on_recreate
        self._to_refresh = set(self._stored()) if wants_refresh else set()
        self._snapshots = dict(snapshots or {})
        self.should_stop: Callable[[], bool] = lambda: False
        """Whether a load of a snapshot should end early."""

    def _stored(self) -> dict[str, StoredTopic]:
        return {name: one for name, one in self._store.topics().items() if name in self._columns}

    def look(self, topic: str) -> Decision:
        """Ask the cluster about a topic and carry out the decision; return FOLLOW or WAIT."""
        stored = self._stored().get(topic)
        try:
            found = self._cluster.describe([topic]).get(topic)
        except BrokerAnswerError as error:
            if error.code == _DENIED:
                return denied(topic)
            raise
        decision = decide(
            topic,
            stored,
            found,
            on_recreate=self._on_recreate,
            wants_refresh=topic in self._to_refresh,
        )
        if found is None or decision.action is Action.WAIT:
            return decision
        if decision.action is Action.BEGIN:
            starts = self.starts(topic, found.partitions)
            self._store.begin_topic(topic, found.topic_id, starts, self._columns[topic])
        if topic in self._snapshots:
            self._load_snapshot(topic, found)
        elif is_unfinished(stored):
            return self._load_instead(topic, found)
        elif decision.action is Action.BEGIN:
            pass
        elif decision.action is Action.BUILD:
            self._build(topic, found)
        else:
            assert stored is not None
            self._grow(stored, found)
            if stored.building is not None:
                self._to_refresh.discard(topic)  # the build that continues is a refresh
            self._store.install_ready(topic)
        return Decision(Action.FOLLOW)

    def rebuild(self, topic: str) -> None:
        """Request a new generation at the next look."""
        self._to_refresh.add(topic)

    def _load_snapshot(self, topic: str, found: TopicDescription) -> None:
        bounds = LogBounds(self.starts(topic, found.partitions), self.ends(topic, found.partitions))
        load_snapshot(self._store, self._snapshots[topic], found, bounds, self.should_stop)
        self._to_refresh.discard(topic)
        del self._snapshots[topic]

    def _load_instead(self, topic: str, found: TopicDescription) -> Decision:
        """Load the topic instead of the snapshot whose load did not end, if that is wanted."""
        if topic not in self._to_refresh:
            return half_loaded(topic)
        self._build(topic, found)
        return Decision(Action.FOLLOW)

    def _build(self, topic: str, found: TopicDescription) -> None:
        starts = self.starts(topic, found.partitions)
        ends = self.ends(topic, found.partitions)
        self._store.begin_generation(topic, found.topic_id, starts, ends)
        self._store.install_ready(topic)  # an empty topic is complete at once
        self._to_refresh.discard(topic)

    def _grow(self, stored: StoredTopic, found: TopicDescription) -> None:
        generation = stored.written
        added = [number for number in found.partitions if number not in generation.positions]
        if added:
            starts = self.starts(stored.name, added)
            self._store.add_partitions(stored.name, generation.number, starts)

    def starts(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the first offset of each partition."""
        return self._offsets(topic, partitions, EARLIEST_TIMESTAMP)

    def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the last stable offset of each partition."""
        return self._offsets(topic, partitions, LATEST_TIMESTAMP)

    def _offsets(self, topic: str, partitions: Iterable[int], time: int) -> dict[int, int]:
        wanted = {TopicPartition(topic, partition): time for partition in partitions}
        found = self._cluster.look_up_offsets(wanted, is_read_committed=True)
        return {at.partition: one.offset for at, one in found.items()}


def half_loaded(topic: str) -> Decision:
    """Return the decision for a topic whose load from a snapshot did not end."""
    return Decision(
        Action.WAIT,
        TopicState.DIVERGED,
        f"the load of {topic!r} from a snapshot did not end; its old rows are served.",
        "Start again with --refresh-from, or with --refresh to load all of the topic.",
    )


def denied(topic: str) -> Decision:
    """Return the decision for a topic that this client may not read."""
    return Decision(
        Action.WAIT,
        TopicState.DENIED,
        f"access to topic {topic!r} was denied.",
        "Allow READ and DESCRIBE on the topic for the user of this service.",
    )
