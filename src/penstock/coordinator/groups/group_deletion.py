"""`GroupDeletion`: DeleteGroups, in portions.

A group without members is deleted with all its offsets. A group may have more of them than fit into
one batch, which Kafka cannot delete: here the offsets are deleted first, portion by portion, and
the group with the last of them. That is not atomic: after a crash a part of the offsets may be
deleted, and when a member joins in between, the rest stays and the answer is NON_EMPTY_GROUP. One
request is carried out after the other. It does NOT decide which group may be deleted: the group
does.

A share group is deleted after the delivery state of its partitions: the request waits for the share
coordinator, and requests behind it too. A state that cannot be deleted keeps the group.
"""

from collections import deque
from functools import partial
from typing import Final

from penstock.coordinator.groups.classic.groups import ClassicGroups
from penstock.coordinator.groups.offsets.requests import offset_tombstone
from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.groups.share.state_effects import StateResults
from penstock.coordinator.groups.share.state_upkeep import StateUpkeep
from penstock.coordinator.groups.state.group_state import GroupState
from penstock.coordinator.portions import Portion
from penstock.coordinator.shard import Ticket, TimerKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

DELETIONS: Final = ("group-deletions",)
"""The timer of the next portion."""


class _Deletion:
    """One request that is being carried out."""

    __slots__ = ("awaited", "codes", "has_begun", "left", "stateless", "ticket")

    def __init__(self, ticket: Ticket, group_ids: tuple[str, ...]) -> None:
        self.ticket = ticket
        self.codes: dict[str, ErrorCode] = {}
        self.left = deque(dict.fromkeys(group_ids))
        self.has_begun = False
        """Whether some offsets of the first remaining group are deleted already."""
        self.awaited: str | None = None
        """The share group whose states are being deleted."""
        self.stateless: str | None = None
        """The share group whose states are deleted."""


class GroupDeletion:
    """The deletions that administrators requested."""

    def __init__(self, state: GroupState, classic: ClassicGroups, share: StateUpkeep) -> None:
        self._state = state
        self._classic = classic
        self._share = share
        self._deletions: deque[_Deletion] = deque()

    def delete(self, request: DeleteGroupsRequest, ticket: Ticket, reaction: Reaction) -> None:
        """Delete groups; the request is answered when the last one is deleted."""
        self._deletions.append(_Deletion(ticket, request.groups_names))
        if len(self._deletions) == 1:
            self._go_on(reaction)

    def timer_fired(self, key: TimerKey, reaction: Reaction) -> bool:
        """Do the next portion; False if the timer is not its own."""
        if key != DELETIONS:
            return False
        self._go_on(reaction)
        return True

    def states_deleted(self, group_id: str, results: StateResults, reaction: Reaction) -> None:
        """The states of a share group are deleted, or could not be."""
        deletion = self._deletions[0]
        assert deletion.awaited == group_id, "one group is deleted at a time"
        deletion.awaited = None
        refusal = next((one for one in results.values() if one is not None), None)
        if refusal is None:
            deletion.stateless = group_id
        else:
            deletion.codes[deletion.left.popleft()] = refusal.error_code
        reaction.set_timer(DELETIONS, 0)

    def _go_on(self, reaction: Reaction) -> None:
        deletion, portion = self._deletions[0], Portion()
        while deletion.left:
            code = self._delete(deletion, portion, reaction)
            if code is None:
                break
            deletion.codes[deletion.left.popleft()] = code
            deletion.has_begun = False
        reaction.when_written(self._written)
        reaction.when_refused(self._refused)

    def _delete(
        self, deletion: _Deletion, portion: Portion, reaction: Reaction
    ) -> ErrorCode | None:
        """Write the tombstones of the next group; None: not all of them fit."""
        group_id = deletion.left[0]
        if group_id == "":
            return ErrorCode.INVALID_GROUP_ID
        group = self._state.find(group_id)
        if group is None:
            return ErrorCode.NONE if deletion.has_begun else ErrorCode.GROUP_ID_NOT_FOUND
        error = group.check_delete()
        if error is not ErrorCode.NONE:
            return error
        if deletion.stateless != group_id and self._share.delete_of_group(group_id, reaction):
            deletion.awaited = group_id
            return None
        for topic, partition in self._state.offsets.keys_of_group(group_id):
            if not portion.take(group_id, topic):
                deletion.has_begun = True
                return None
            reaction.write_all([offset_tombstone(group_id, topic, partition)])
        tombstones = group.tombstones()
        if not portion.take(group_id, record_count=len(tombstones)):
            return None
        reaction.write_all(tombstones)
        reaction.when_written(partial(self._classic.forget, group_id))
        return ErrorCode.NONE

    def _written(self, reaction: Reaction) -> None:
        """Answer a request that is done; continue with its other groups, or the next request."""
        if not self._deletions[0].left:
            self._answer(reaction)
        if self._deletions and self._deletions[0].awaited is None:
            reaction.set_timer(DELETIONS, 0)

    def _refused(self, reaction: Reaction) -> None:
        """The log has no room: answer with an error that clients retry."""
        deletion = self._deletions[0]
        group_ids = (*deletion.codes, *deletion.left)
        deletion.codes = dict.fromkeys(group_ids, ErrorCode.NOT_COORDINATOR)
        self._answer(reaction)
        if self._deletions:
            reaction.set_timer(DELETIONS, 0)

    def _answer(self, reaction: Reaction) -> None:
        deletion = self._deletions.popleft()
        results = tuple(
            DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id, code in deletion.codes.items()
        )
        reaction.reply(deletion.ticket, DeleteGroupsResponse(results=results))
