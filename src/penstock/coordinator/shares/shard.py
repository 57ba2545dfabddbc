"""`ShareShard`: the share coordinator behind one partition of `__share_group_state`.

It keeps the durable delivery state of share-partitions, and decides which change is allowed.
Guarantees:

- a change of a leader, or for a state epoch, that a later one has replaced is refused
  (FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH). A leader that reads the state fences earlier leaders,
  and that is durable before it is answered;
- a state is stored whole every `updates_per_snapshot` changes, and when it rests; the log below all
  last snapshots is deleted. The rest of the log gives the same state;
- the state of a deleted topic is deleted.

It does NOT know records in flight, and it deletes nothing from the log: it asks for that with an
effect. A request names one share-partition; the handlers split larger ones.
"""

from collections.abc import Collection
from typing import Final

from penstock.coordinator.metadata_view import TopicsView
from penstock.coordinator.portions import Portion
from penstock.coordinator.shard import (
    NOTHING,
    REFUSED_RETRY_MS,
    Asked,
    Outcome,
    Producer,
    Reply,
    SetTimer,
    StoredRecord,
    Ticket,
    TimerKey,
)
from penstock.coordinator.shares import share_checks as checks
from penstock.coordinator.shares import share_messages as messages
from penstock.coordinator.shares import share_partition as states
from penstock.coordinator.shares.log_effects import DeleteBelow
from penstock.coordinator.shares.ports import (
    Refusal,
    ShareChange,
    ShareKey,
    ShareState,
    ShareSummary,
)
from penstock.coordinator.shares.settings import ShareSettings
from penstock.coordinator.shares.share_partition import NO_EPOCH, NO_START, SharePartition
from penstock.core.errors import PenstockError
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from penstock.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
)
from penstock.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from penstock.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
)
from penstock.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from penstock.protocol.stored.share_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)

PRUNE: Final = ("prune",)
REST: Final = ("rest",)
GONE: Final = ("gone",)
_BATCH_BYTES: Final = 20
"""Of one state batch in a record."""
_UNKNOWN: Final = ShareSummary(
    state_epoch=0, leader_epoch=0, start_offset=NO_START, delivery_complete_count=-1
)


class ShareShard:
    """The share-partitions of one partition."""

    def __init__(self, settings: ShareSettings, partition: int) -> None:
        self.partitions: dict[ShareKey, SharePartition] = {}
        self._settings = settings
        self._partition = partition
        self._topics: TopicsView | None = None
        self._end_offset = 0
        """Behind the last replayed record."""
        # Soft state: after a reload, at most one more snapshot or deletion than needed.
        self._deleted_below = 0
        self._has_news = False
        """Whether the log has records since the last snapshots of share-partitions at rest."""

    # --- Events ---

    def handle(self, asked: Asked, ticket: Ticket, now_ms: int) -> Outcome:
        """React to a request for one share-partition."""
        match asked.request:
            case WriteShareGroupStateRequest():
                return self._write(asked.request, ticket, now_ms)
            case ReadShareGroupStateRequest():
                return self._read(asked.request, ticket, now_ms)
            case ReadShareGroupStateSummaryRequest():
                return self._sum_up(asked.request, ticket)
            case InitializeShareGroupStateRequest():
                return self._initialize(asked.request, ticket, now_ms)
            case DeleteShareGroupStateRequest():
                return self._delete(asked.request, ticket)
        raise AssertionError(f"no share coordinator answers {type(asked.request).__name__}")

    def timer_fired(self, key: TimerKey, now_ms: int) -> Outcome:
        """Free the log: snapshots of share-partitions at rest, and the deletion of old records."""
        match key:
            case ("prune",):
                return self._prune()
            case ("rest",):
                return self._rewrite_resting(now_ms)
            case ("gone",):
                return self._delete_gone()
        raise AssertionError(f"the share coordinator has no timer {key!r}")

    def effect_done(self, effect: object, result: object, now_ms: int) -> Outcome:
        """Note how far the log is deleted; after a failure the next check tries again."""
        del now_ms
        assert isinstance(effect, DeleteBelow), effect
        if not isinstance(result, PenstockError):
            self._deleted_below = max(self._deleted_below, effect.offset)
        return NOTHING

    def topics_changed(self, topics: TopicsView, gone: Collection[str], now_ms: int) -> Outcome:
        """Delete the state of deleted topics."""
        del now_ms
        self._topics = topics
        return self._delete_gone() if gone else NOTHING

    def loaded(self, topics: TopicsView, now_ms: int) -> Outcome:
        """Delete the state of topics that were deleted meanwhile; start the checks."""
        del now_ms
        self._topics = topics
        outcome = self._delete_gone()
        timers = (
            SetTimer(PRUNE, self._settings.prune_interval_ms),
            SetTimer(REST, self._settings.cold_snapshot_interval_ms),
        )
        return outcome._replace(timers=(*timers, *outcome.timers))

    def replay(self, record: StoredRecord, producer: Producer | None, offset: int) -> None:
        """Apply a snapshot, an update or a deletion."""
        assert producer is None, "share state is never written inside a transaction"
        key, value = record
        self._end_offset = max(self._end_offset, offset + 1)
        if isinstance(key, ShareUpdateKey):
            self._replay_update(_key(key), value)
            return
        assert isinstance(key, ShareSnapshotKey), record
        name = _key(key)
        if value is None:
            self.partitions.pop(name, None)
            self._has_news = True
            return
        assert isinstance(value, ShareSnapshotValue), record
        state = states.of_snapshot(value, self.partitions.get(name), offset)
        self.partitions[name] = state
        self._has_news = self._has_news or not state.is_cold

    def _replay_update(self, key: ShareKey, value: Message | None) -> None:
        assert isinstance(value, ShareUpdateValue), (key, value)
        now = self.partitions.get(key)
        if now is not None:
            self.partitions[key] = states.with_update(now, value)
        # Without a state, its snapshot was deleted: a later record replaces or deletes the state.
        self._has_news = True

    def replay_marker(self, producer: Producer, *, commits: bool) -> None:
        """Do nothing: no transaction writes to this partition."""
        del producer, commits

    def validate(self) -> None:
        """Assert the invariants between events."""
        for key, state in self.partitions.items():
            assert key.partition >= 0, key
            assert state.snapshot_offset < self._end_offset, (key, state)
            state.validate()

    # --- Requests ---

    def _initialize(
        self, request: InitializeShareGroupStateRequest, ticket: Ticket, now_ms: int
    ) -> Outcome:
        key = messages.key_of(request)
        ((asked,),) = (topic.partitions for topic in request.topics)
        now = self.partitions.get(key)
        refusal = (
            checks.bad_partition(key)
            or checks.fenced_state(now, asked.state_epoch)
            or self._unknown(key)
        )
        if refusal is not None:
            return _answer(ticket, messages.initialized(key, refusal))
        record = states.created(key, now, asked.state_epoch, asked.start_offset, now_ms)
        return _stored(record, ticket, messages.initialized(key, None))

    def _read(self, request: ReadShareGroupStateRequest, ticket: Ticket, now_ms: int) -> Outcome:
        key = messages.key_of(request)
        ((asked,),) = (topic.partitions for topic in request.topics)
        now = self.partitions.get(key)
        refusal = (
            checks.bad_partition(key)
            or checks.uninitialized(now, key)
            or checks.fenced_leader(now, asked.leader_epoch)
            or self._unknown(key)
        )
        if refusal is not None:
            return _answer(ticket, messages.found(key, refusal))
        assert now is not None
        answer = messages.found(key, ShareState(now.state_epoch, now.start_offset, now.batches))
        if asked.leader_epoch in (NO_EPOCH, now.leader_fence):
            return _answer(ticket, answer)
        fence = ShareChange(
            now.state_epoch,
            asked.leader_epoch,
            now.start_offset,
            (),
            now.delivery_complete_count,
        )
        return _stored(self._changed(key, now, fence, now_ms), ticket, answer)

    def _write(self, request: WriteShareGroupStateRequest, ticket: Ticket, now_ms: int) -> Outcome:
        key = messages.key_of(request)
        refusal = checks.too_many_sent(request)
        if refusal is not None:
            return _answer(ticket, messages.written(key, refusal))
        change = messages.change_of(request)
        now = self.partitions.get(key)
        refusal = (
            checks.bad_partition(key)
            or checks.uninitialized(now, key)
            or checks.fenced_leader(now, change.leader_epoch)
            or checks.fenced_state(now, change.state_epoch)
            or self._unknown(key)
            or checks.bad_change(now, change)
        )
        if refusal is not None:
            return _answer(ticket, messages.written(key, refusal))
        assert now is not None
        # Only a read changes the leader epoch, as in Kafka: each leader reads before it writes.
        change = change._replace(leader_epoch=NO_EPOCH)
        record = self._changed(key, now, change, now_ms)
        return _stored(record, ticket, messages.written(key, None))

    def _delete(self, request: DeleteShareGroupStateRequest, ticket: Ticket) -> Outcome:
        key = messages.key_of(request)
        refusal = checks.bad_partition(key) or self._unknown(key)
        answer = messages.deleted(key, refusal)
        if refusal is not None or key not in self.partitions:
            return _answer(ticket, answer)
        return _stored(states.deleted(key), ticket, answer)

    def _sum_up(self, request: ReadShareGroupStateSummaryRequest, ticket: Ticket) -> Outcome:
        key = messages.key_of(request)
        refusal = checks.bad_partition(key) or self._unknown(key)
        if refusal is not None:
            return _answer(ticket, messages.summed_up(key, refusal))
        now = self.partitions.get(key)
        if now is None:
            return _answer(ticket, messages.summed_up(key, _UNKNOWN))
        summary = ShareSummary(
            now.state_epoch, now.leader_epoch, now.start_offset, now.delivery_complete_count
        )
        return _answer(ticket, messages.summed_up(key, summary))

    def _changed(
        self, key: ShareKey, now: SharePartition, change: ShareChange, now_ms: int
    ) -> StoredRecord:
        return states.changed(key, now, change, self._settings.updates_per_snapshot, now_ms)

    def _unknown(self, key: ShareKey) -> Refusal | None:
        topic = None if self._topics is None else self._topics.by_id(key.topic_id)
        if topic is None:
            return Refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic id {key.topic_id} is unknown"
            )
        if key.partition >= topic.partition_count:
            return Refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic.name} has {topic.partition_count} partitions, not {key.partition}",
            )
        return None

    # --- The log ---

    def _prune(self) -> Outcome:
        """Ask for the deletion of all records below the oldest that is needed."""
        needed = min(
            (state.snapshot_offset for state in self.partitions.values()),
            default=self._end_offset,
        )
        again = SetTimer(PRUNE, self._settings.prune_interval_ms)
        effects = (DeleteBelow(self._partition, needed),) if needed > self._deleted_below else ()
        return Outcome(timers=(again,), effects=effects)

    def _rewrite_resting(self, now_ms: int) -> Outcome:
        """Write snapshots of share-partitions at rest: their old ones hold the log back."""
        interval_ms = self._settings.cold_snapshot_interval_ms
        if not self._has_news:
            return Outcome(timers=(SetTimer(REST, interval_ms),))
        written_ms_max = now_ms - interval_ms
        portion = Portion()
        records: list[StoredRecord] = []
        is_whole = True
        for key, state in self.partitions.items():
            if state.written_ms > written_ms_max:
                continue
            if not portion.take(key.group_id, more_bytes=_BATCH_BYTES * len(state.batches)):
                is_whole = False
                break
            records.append(states.rewritten(key, state, now_ms))

        def then(error: PenstockError | None) -> Outcome:
            self._has_news = self._has_news and not (error is None and is_whole)
            delay_ms = interval_ms if error is not None or is_whole else 0
            return Outcome(timers=(SetTimer(REST, delay_ms),))

        return Outcome(records=tuple(records), then=then)

    def _delete_gone(self) -> Outcome:
        """Delete the state of topics that no longer exist."""
        topics = self._topics
        assert topics is not None
        ids = {key.topic_id for key in self.partitions}
        gone_ids = {topic_id for topic_id in ids if topics.by_id(topic_id) is None}
        if not gone_ids:
            return NOTHING
        portion = Portion()
        records: list[StoredRecord] = []
        is_whole = True
        for key in self.partitions:
            if key.topic_id not in gone_ids:
                continue
            if not portion.take(key.group_id):
                is_whole = False
                break
            records.append(states.deleted(key))

        def then(error: PenstockError | None) -> Outcome:
            if error is None and is_whole:
                return NOTHING
            return Outcome(timers=(SetTimer(GONE, 0 if error is None else REFUSED_RETRY_MS),))

        return Outcome(records=tuple(records), then=then)


def _key(stored: ShareSnapshotKey | ShareUpdateKey) -> ShareKey:
    assert stored.partition >= 0, stored
    return ShareKey(stored.group_id, stored.topic_id or messages.NO_TOPIC, stored.partition)


# --- Outcomes ---


def _answer(ticket: Ticket, response: Message) -> Outcome:
    return Outcome(replies=(Reply(ticket, response),))


def _stored(record: StoredRecord, ticket: Ticket, response: Message) -> Outcome:
    """An answer that waits for a record. Nothing but the record changes the shard."""
    return Outcome(records=(record,), replies=(Reply(ticket, response),), is_revocable=True)
