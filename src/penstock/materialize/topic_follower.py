"""`TopicFollower`: reads topics with `read_committed` and writes their rows, until it is stopped.

Guarantees: every record below the position of its partition is in the rows, in the order of its
partition, exactly once. A failure of a broker, a leader or the disk delays records and loses none.
Offsets that retention deleted before they were read are declared as a gap, in the file and in
`/health`. A topic that was created again, or whose log is shorter than the position, is not read
further until the operator decides, or it is built again (`on_recreate`).

Blocking code for one thread. It joins no group and commits nothing to the broker.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from penstock.client.calls import FetchBounds
from penstock.client.cluster import Cluster
from penstock.client.transport.addresses import Address
from penstock.core.clock import Clock
from penstock.core.errors import ClientError, MetadataError, PeerError, PenstockError, RecordsError
from penstock.core.types import TopicPartition
from penstock.materialize.committed_fetch import Place, fetch_committed
from penstock.materialize.committed_records import Aborted, committed_batches
from penstock.materialize.progress_board import ProgressBoard
from penstock.materialize.row_store import (
    Gap,
    Portion,
    RowStore,
    StoreBusyError,
    StoreFullError,
)
from penstock.materialize.store_health import GapFact, TopicFacts, Trouble
from penstock.materialize.topic_decisions import (
    REBUILD,
    Action,
    Decision,
    StoredTopic,
    TopicState,
)
from penstock.materialize.topic_watch import TopicWatch, denied
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import PartitionData

LOOK_SECONDS: Final = 30.0
"""Between two looks at the metadata of a topic: new partitions are found within this time."""
WAIT_SECONDS: Final = 2.0
"""Between two looks at a topic that cannot be read."""
PAUSE_SECONDS_FIRST: Final = 0.1
PAUSE_SECONDS_MAX: Final = 5.0
"""Between attempts while no broker answers, or the disk is full."""
FETCH_WAIT_MS: Final = 500
FETCH_WAIT_MS_SHARED: Final = 100
"""With several leaders: an idle leader delays the records of the others by this time."""
FETCH_BYTES_MAX: Final = 8_388_608
PARTITION_BYTES_MAX: Final = 2_097_152
PORTION_BYTES_MAX: Final = 33_554_432
"""Changes of one transaction, before SQLite; one decompressed batch may exceed it."""
BEHIND_RECORDS: Final = 10_000
"""A topic that is further behind is LOADING again."""

_LOST: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


Result = TypeVar("Result")


class UnreadableTopicError(PenstockError):
    """A topic cannot be loaded with `--once`."""


@dataclass(slots=True)
class _Topic:
    """The state of one topic in the follower."""

    decision: Decision = field(default_factory=lambda: Decision(Action.WAIT))
    next_look: float = 0.0
    state: TopicState = TopicState.STARTING
    ends: dict[int, int] = field(default_factory=dict)
    has_news: bool = False
    """Whether the ends have changed since the last publication."""
    targets: dict[int, int] | None = None
    """The end of a load with `--once`."""


class TopicFollower:
    """Follows the topics of one file."""

    def __init__(
        self,
        cluster: Cluster,
        store: RowStore,
        watch: TopicWatch,
        board: ProgressBoard,
        topics: Sequence[str],
        *,
        on_recreate: str,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._watch = watch
        self._board = board
        self._topics = {name: _Topic() for name in topics}
        self._on_recreate = on_recreate
        self._clock = clock
        self._stop = threading.Event()
        watch.should_stop = self._stop.is_set
        self._stored: dict[str, StoredTopic] = {}
        self._gaps: list[Gap] = []
        self._reload()
        for name in topics:
            self._publish(name)

    def stop(self) -> None:
        """End `run` soon; called from any thread."""
        self._stop.set()

    def run(self, *, is_once: bool = False) -> None:
        """Follow until `stop`; with `is_once` until the ends of the topics at the start."""
        pause = PAUSE_SECONDS_FIRST
        while not self._stop.is_set():
            try:
                self._look_at_due()
                has_answer = self._fetch_round()
            except (ClientError, MetadataError, PeerError) as error:
                if is_once and isinstance(error, ClientError) and not self._is_started():
                    raise
                self._board.unreachable(
                    Trouble(f"{error}", error.hint or "Check that the brokers run.")
                )
                self._cluster.forget_leaders()
                self._stop.wait(pause)
                pause = min(2 * pause, PAUSE_SECONDS_MAX)
                continue
            if has_answer:
                pause = PAUSE_SECONDS_FIRST
                self._board.contacted()
            else:
                self._stop.wait(PAUSE_SECONDS_FIRST)
            if is_once and self._is_complete():
                return

    # --- Topics ---

    def _look_at_due(self) -> None:
        now = self._clock.monotonic()
        for name, topic in self._topics.items():
            if topic.next_look <= now and not self._stop.is_set():
                decision = self._until_written(partial(self._watch.look, name))
                if decision is None:
                    return
                self._board.contacted()
                self._set_decision(name, decision)
                self._reload()
                if decision.action is Action.FOLLOW and topic.targets is None:
                    stored = self._stored[name].written
                    topic.targets = self._watch.ends(name, stored.positions)
                self._publish(name)

    def _set_decision(self, name: str, decision: Decision) -> None:
        topic = self._topics[name]
        is_followed = decision.action is Action.FOLLOW
        topic.decision = decision
        topic.next_look = self._clock.monotonic() + (LOOK_SECONDS if is_followed else WAIT_SECONDS)
        if not is_followed:
            topic.state = decision.state

    def _wait_for(self, name: str, decision: Decision) -> None:
        """Stop reading a topic until the next look."""
        self._set_decision(name, decision)
        self._publish(name)

    def _is_started(self) -> bool:
        return any(topic.decision.action is Action.FOLLOW for topic in self._topics.values())

    def _is_complete(self) -> bool:
        for name, topic in self._topics.items():
            if topic.decision.action is Action.WAIT:
                raise UnreadableTopicError(topic.decision.reason, hint=topic.decision.remedy)
            stored = self._stored[name]
            targets = topic.targets or {}
            if stored.building is not None or any(
                stored.live.positions.get(at, 0) < end for at, end in targets.items()
            ):
                return False
        return True

    # --- Records ---

    def _fetch_round(self) -> bool:
        """Fetch once from each leader and write the records; return whether a leader answered."""
        by_leader = self._places_by_leader()
        if not by_leader:
            return False
        wait_ms = FETCH_WAIT_MS if len(by_leader) == 1 else FETCH_WAIT_MS_SHARED
        bounds = FetchBounds(wait_ms, 1, FETCH_BYTES_MAX, PARTITION_BYTES_MAX)
        asked = {address: fetch_committed(some, bounds) for address, some in by_leader.items()}
        portion = Portion()
        is_answered = True
        for answers in self._cluster.at_each(asked):
            for at, answer in answers.items():
                if answer.error_code != ErrorCode.NONE:
                    is_answered = False
                    self._refused(at, answer.error_code)
                else:
                    portion = self._add(portion, at, answer)
        self._write(portion)
        for name, topic in self._topics.items():
            if topic.has_news:
                self._publish(name)
        return is_answered

    def _places_by_leader(self) -> dict[Address, list[Place]]:
        """Return the partitions to read; those without a leader are left out for a moment."""
        grouped: dict[Address, list[Place]] = {}
        problem: ClientError | MetadataError | None = None
        for name, topic in self._topics.items():
            if topic.decision.action is not Action.FOLLOW:
                continue
            generation = self._stored[name].written
            for partition, offset in generation.positions.items():
                at = TopicPartition(name, partition)
                try:
                    address = self._cluster.leaders([at])[at].address
                except (ClientError, MetadataError) as error:
                    problem = error
                else:
                    grouped.setdefault(address, []).append(Place(at, generation.topic_id, offset))
        if problem is not None:
            if not grouped:
                raise problem
            self._cluster.forget_leaders()
        return grouped

    def _add(self, portion: Portion, at: TopicPartition, answer: PartitionData) -> Portion:
        """Add the records of an answer; return the portion for the next ones."""
        topic = self._topics[at.topic]
        end = answer.last_stable_offset
        end = end if end >= 0 else answer.high_watermark
        if topic.ends.get(at.partition) != end:
            topic.ends[at.partition] = end
            topic.has_news = True
        if not answer.records:
            return portion
        generation = self._stored[at.topic].written
        aborted = [
            Aborted(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()
        ]
        position = generation.positions[at.partition]
        try:
            for batch in committed_batches(answer.records, aborted, position):
                changes = portion.of(at.topic, generation.number, at.partition)
                changes.add(batch.records)
                portion.advance(at.topic, generation.number, at.partition, batch.next_offset)
                if portion.size_bytes > PORTION_BYTES_MAX:
                    self._write(portion)
                    portion = Portion()
        except RecordsError as error:
            reason = f"{at}: a stored batch cannot be read: {error}."
            remedy = "Check the broker's disk: `penstock log check`. Reading is tried again."
            self._wait_for(at.topic, Decision(Action.WAIT, TopicState.CORRUPT, reason, remedy))
        return portion

    def _write(self, portion: Portion) -> None:
        """Write a portion; wait while the disk is full."""
        if not portion.positions:
            return
        installed = self._until_written(lambda: self._store.apply(portion))
        if installed is None:
            return
        self._reload()
        for name in {topic for topic, _ in portion.positions}:
            self._publish(name)

    def _until_written(self, write: Callable[[], Result]) -> Result | None:
        """Repeat a write while the disk is full or the file is locked; None after a stop.

        Nothing is written after a stop: an earlier portion may be missing, and its rows would be
        passed for ever.
        """
        pause = PAUSE_SECONDS_FIRST
        while not self._stop.is_set():
            try:
                result = write()
            except (StoreFullError, StoreBusyError) as error:
                self._board.store_trouble(Trouble(str(error), error.hint))
                self._stop.wait(pause)
                pause = min(2 * pause, PAUSE_SECONDS_MAX)
            else:
                self._board.store_trouble(None)
                return result
        return None

    # --- Errors of a partition ---

    def _refused(self, at: TopicPartition, code: ErrorCode) -> None:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._find_range(at)
        elif code in _LOST:
            self._topics[at.topic].next_look = 0.0
            self._cluster.forget_leaders()
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._wait_for(at.topic, denied(at.topic))
        else:
            self._cluster.forget_leaders()

    def _find_range(self, at: TopicPartition) -> None:
        """Compare the position with the log: declare a gap, or stop at a shorter log."""
        generation = self._stored[at.topic].written
        position = generation.positions[at.partition]
        start = self._watch.starts(at.topic, [at.partition])[at.partition]
        end = self._watch.ends(at.topic, [at.partition])[at.partition]
        # Offsets are looked up by name: they count only if the topic is the same one.
        found = self._cluster.describe([at.topic]).get(at.topic)
        if found is None or (found.topic_id or generation.topic_id) != generation.topic_id:
            self._topics[at.topic].next_look = 0.0
            return
        if position < start:
            gap = Gap(at.topic, at.partition, position, start, self._clock.now_ms())
            self._until_written(lambda: self._store.declare_gap(gap, generation.number))
            self._until_written(lambda: self._store.install_ready(at.topic))
            self._reload()
            self._publish(at.topic)
        elif position > end:
            self._diverged(at, position, end)

    def _diverged(self, at: TopicPartition, position: int, end: int) -> None:
        if self._on_recreate == REBUILD:
            self._watch.rebuild(at.topic)
            self._topics[at.topic].next_look = 0.0
            return
        reason = f"{at} ends at offset {end}, and rows up to {position} were loaded from it."
        remedy = "The log was cut or restored from a backup: restart with --refresh."
        self._wait_for(at.topic, Decision(Action.WAIT, TopicState.DIVERGED, reason, remedy))

    # --- Progress ---

    def _reload(self) -> None:
        self._stored = self._store.topics()
        self._gaps = self._store.gaps()

    def _publish(self, name: str) -> None:
        topic, stored = self._topics[name], self._stored.get(name)
        topic.has_news = False
        if stored is None:
            self._board.publish(name, TopicFacts(topic.state, trouble=_trouble(topic.decision)))
            return
        positions = stored.live.positions
        if topic.decision.action is Action.FOLLOW:
            topic.state = _followed_state(topic.state, stored, topic.ends)
        gaps = [GapFact(*gap[1:]) for gap in self._gaps if gap.topic == name]
        self._board.publish(
            name,
            TopicFacts(
                topic.state,
                dict(positions),
                dict(topic.ends),
                stored.live.number,
                gaps,
                stored.skipped_records,
                _trouble(topic.decision),
            ),
        )


def _trouble(decision: Decision) -> Trouble | None:
    return Trouble(decision.reason, decision.remedy) if decision.reason else None


def _followed_state(before: TopicState, stored: StoredTopic, ends: Mapping[int, int]) -> TopicState:
    if stored.building is not None:
        return TopicState.REFRESHING
    lags = [max(0, ends[at] - offset) for at, offset in stored.live.positions.items() if at in ends]
    if len(lags) < len(stored.live.positions):
        return TopicState.LOADING
    if sum(lags) == 0:
        return TopicState.FOLLOWING
    if before is TopicState.FOLLOWING and sum(lags) < BEHIND_RECORDS:
        return TopicState.FOLLOWING
    return TopicState.LOADING
