"""`StateUpkeep`: creates and deletes the delivery state of share groups' partitions.

Each step is a record, an effect, and a record when the effect ended. A subscribed partition gets
its state with a start offset of -1: as in Kafka, the leader of the partition chooses the start by
`share.auto.offset.reset` at the first fetch. A refused partition is tried again in the next
heartbeat. Deletions that a crash interrupted are sent again when the log is loaded. Topics that do
not exist any more are forgotten in portions; the share coordinator deletes their states itself.

It does NOT answer requests: `share.share_offsets` does.
"""

from collections import deque
from collections.abc import Collection, Iterable
from functools import partial
from itertools import islice
from typing import Final, cast
from uuid import UUID

from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.groups.share import records
from penstock.coordinator.groups.share.change import ShareGroupChange
from penstock.coordinator.groups.share.share_group import ShareGroup
from penstock.coordinator.groups.share.state_effects import (
    DeleteStates,
    InitializeStates,
    StateResults,
)
from penstock.coordinator.groups.share.state_partitions import Place, StatePartitions
from penstock.coordinator.groups.state.group_state import GroupState
from penstock.coordinator.portions import Portion
from penstock.coordinator.shard import REFUSED_RETRY_MS, TimerKey
from penstock.coordinator.shares.ports import Refusal
from penstock.core.errors import PenstockError
from penstock.protocol.error_codes import ErrorCode

UNINITIALIZED: Final = -1
"""A start offset that the leader of the partition chooses."""
GONE_TOPICS: Final = ("share-states-of-deleted-topics",)
"""The timer of the next portion of records for deleted topics."""
GROUPS_PER_PASS_MAX: Final = 1_000
"""Groups that are checked in one turn: some milliseconds of work."""
STATES_PER_EFFECT_MAX: Final = 1_000
"""Partitions of one effect of a heartbeat; the next heartbeat continues."""
_PLACE_BYTES: Final = 4
_TOPIC_BYTES: Final = 64


class StateUpkeep:
    """The delivery state of all share groups of a shard."""

    def __init__(self, state: GroupState) -> None:
        self._state = state
        self._under_way: dict[str, dict[Place, InitializeStates]] = {}
        """Soft, by group: the last effect that creates the state of a partition. Only its end
        counts: an earlier one may be followed by a deletion or a reset."""
        self._gone_names: set[str] = set()
        self._groups_to_check: deque[str] = deque()

    # --- Creating ---

    def initialize(self, change: ShareGroupChange, reaction: Reaction) -> None:
        """Create the states that the group of a heartbeat needs."""
        group_id = change.group.group_id
        under_way = self._under_way.get(group_id, {})
        places = change.initialize_states(under_way)[:STATES_PER_EFFECT_MAX]
        if places:
            starts = tuple((place, UNINITIALIZED) for place in places)
            self.begin(InitializeStates(group_id, change.epoch, starts), reaction)

    def begin(self, effect: InitializeStates, reaction: Reaction) -> None:
        """Create states; a heartbeat does not create the same ones until the call ended."""
        reaction.perform(effect)
        reaction.when_written(partial(self._begun, effect))

    def _begun(self, effect: InitializeStates, _rest: Reaction) -> None:
        under_way = self._under_way.setdefault(effect.group_id, {})
        under_way.update((place, effect) for place, _ in effect.starts)

    def initialized(
        self, effect: InitializeStates, result: object, reaction: Reaction
    ) -> StateResults:
        """Note the created states; return the result of each partition."""
        reaction.make_revocable()
        places = [place for place, _ in effect.starts]
        under_way = self._under_way.get(effect.group_id, {})
        last = [place for place in places if under_way.get(place) is effect]
        self._forget(effect.group_id, last)
        results = results_of(places, result)
        group = self._state.share.get(effect.group_id)
        if group is not None:
            states = cast("ShareGroup", group).state_partitions
            created = states.finish(place for place in last if results[place] is None)
            refused = (place for place in last if results[place] is not None)
            self._write(cast("ShareGroup", group), created.give_up(refused), reaction)
        return results

    def _forget(self, group_id: str, places: Iterable[Place]) -> None:
        under_way = self._under_way.get(group_id, {})
        for place in places:
            under_way.pop(place, None)
        if not under_way:
            self._under_way.pop(group_id, None)

    # --- Deleting ---

    def begin_deletion(self, effect: DeleteStates, reaction: Reaction) -> None:
        """Delete states. They are created again only after that, whatever is under way."""
        reaction.perform(effect)
        reaction.when_written(lambda _: self._forget(effect.group_id, effect.places))

    def delete_of_group(self, group_id: str, reaction: Reaction) -> bool:
        """Delete all states of a group that is to be deleted; False: it has none."""
        group = self._state.share.get(group_id)
        if group is None:
            return False
        states = cast("ShareGroup", group).state_partitions
        places = self.places_of(states, states.topic_ids())
        self._write(cast("ShareGroup", group), states.begin_deletion(states.topic_ids()), reaction)
        if not places:
            return False
        self.begin_deletion(DeleteStates(group_id, tuple(places), is_of_group=True), reaction)
        return True

    def places_of(self, states: StatePartitions, topic_ids: Iterable[UUID]) -> list[Place]:
        """The partitions of topics that may have state; of topics in `deleting` all that exist."""
        places: list[Place] = []
        for topic_id in sorted(topic_ids):
            numbers = states.initialized_of(topic_id) | states.initializing_of(topic_id)
            view = self._state.topics.by_id(topic_id)
            if topic_id in states.deleting and view is not None:
                numbers |= frozenset(range(view.partition_count))
            places += [(topic_id, number) for number in sorted(numbers)]
        return places

    def deleted(self, effect: DeleteStates, result: object, reaction: Reaction) -> StateResults:
        """Note the deleted states; return the result of each partition."""
        reaction.make_revocable()
        results = results_of(effect.places, result)
        group = self._state.share.get(effect.group_id)
        if group is not None:
            failed = {topic_id for (topic_id, _), refusal in results.items() if refusal is not None}
            done = {topic_id for topic_id, _ in effect.places} - failed
            states = cast("ShareGroup", group).state_partitions
            self._write(cast("ShareGroup", group), states.finish_deletion(done), reaction)
        return results

    def _write(self, group: ShareGroup, states: StatePartitions, reaction: Reaction) -> None:
        if states != group.state_partitions:
            reaction.write_all([records.state_partitions(group.group_id, states)])

    # --- Other events ---

    def loaded(self, reaction: Reaction) -> None:
        """Send the deletions again that were under way."""
        for group_id, group in self._state.share.items():
            states = cast("ShareGroup", group).state_partitions
            places = self.places_of(states, states.deleting) if states.deleting else []
            if places:
                reaction.perform(DeleteStates(group_id, tuple(places)))

    def topics_gone(self, gone: Collection[str], reaction: Reaction) -> None:
        """Topics were deleted, or deleted and created anew."""
        if gone and self._state.share:
            self._gone_names.update(gone)
            self._groups_to_check = deque(self._state.share)
            reaction.set_timer(GONE_TOPICS, 0)

    def timer_fired(self, key: TimerKey, reaction: Reaction) -> bool:
        """Do the next portion; False if the timer is not its own."""
        if key != GONE_TOPICS:
            return False
        queue, portion = self._groups_to_check, Portion()
        count = 0
        for group_id in islice(queue, GROUPS_PER_PASS_MAX):
            if not self._forget_gone(group_id, portion, reaction):
                break
            count += 1
        reaction.when_written(partial(self._continue, count))
        reaction.when_refused(lambda rest: rest.set_timer(GONE_TOPICS, REFUSED_RETRY_MS))
        return True

    def _continue(self, count: int, reaction: Reaction) -> None:
        for _ in range(count):
            self._groups_to_check.popleft()
        if self._groups_to_check:
            reaction.set_timer(GONE_TOPICS, 0)
        else:
            self._gone_names.clear()

    def _forget_gone(self, group_id: str, portion: Portion, reaction: Reaction) -> bool:
        """Write the record of one group without deleted topics; False: it does not fit."""
        group = self._state.share.get(group_id)
        if group is None:
            return True
        states = cast("ShareGroup", group).state_partitions
        names = {**states.names(), **states.deleting}
        gone = [
            topic_id
            for topic_id, name in names.items()
            if name in self._gone_names and self._state.topics.by_id(topic_id) is None
        ]
        if not gone:
            return True
        rest = states.without_topics(gone)
        parts = (rest.initializing, rest.initialized)
        place_count = sum(len(found.numbers) for part in parts for found in part.values())
        size = place_count * _PLACE_BYTES + len(names) * _TOPIC_BYTES
        size += sum(4 * len(name) for name in names.values())
        if not portion.take(group_id, more_bytes=size):
            return False
        self._write(cast("ShareGroup", group), rest, reaction)
        return True

    def validate(self) -> None:
        """Assert the invariants between events."""
        assert all(self._under_way.values()), "a group without calls under way is not kept"


def results_of(places: Iterable[Place], result: object) -> dict[Place, Refusal | None]:
    """The result of each partition, also if the whole effect failed."""
    if isinstance(result, PenstockError):
        refusal = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(result))
        return dict.fromkeys(places, refusal)
    assert isinstance(result, dict), type(result).__name__
    return {place: result[place] for place in places}
