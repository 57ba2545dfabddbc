"""The five requests of share state for one share-partition, to either broker."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from penstock.coordinator.shares import share_messages as messages
from penstock.coordinator.shares.ports import (
    Refusal,
    ShareChange,
    ShareKey,
    ShareState,
    ShareSummary,
    StateBatch,
)
from penstock.coordinator.shares.share_keys import key_text
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.delete_share_group_state import DeleteShareGroupStateResponse
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateResponse,
)
from penstock.protocol.messages.read_share_group_state import ReadShareGroupStateResponse
from penstock.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryResponse,
)
from penstock.protocol.messages.write_share_group_state import WriteShareGroupStateResponse
from tests.broker.handlers.asker import Asker, fresh_name

WAITING = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def find_shares(asker: Asker, *keys: str, version: int = 6) -> list[ErrorCode]:
    """FindCoordinator for share-partitions; Kafka creates the topic first."""

    def codes() -> list[ErrorCode]:
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=keys)
        found = asker.ask(request, version, FindCoordinatorResponse)
        return [one.error_code for one in found.coordinators]

    asker.until(lambda: not set(codes()) & set(WAITING))
    return codes()


class SharePartitionAsker(NamedTuple):
    """One share-partition of a new group and a topic."""

    asker: Asker
    key: ShareKey

    def initialize(self, state_epoch: int = 1, start_offset: int = 0) -> ErrorCode:
        request = messages.initialize_request(self.key, state_epoch, start_offset)
        return _code(
            messages.refusal_of(self.asker.ask(request, 0, InitializeShareGroupStateResponse))
        )

    def read(self, leader_epoch: int = -1) -> ShareState | ErrorCode:
        request = messages.read_request(self.key, leader_epoch)
        found = messages.state_of(self.asker.ask(request, 0, ReadShareGroupStateResponse))
        return found.error_code if isinstance(found, Refusal) else found

    def write(
        self,
        *batches: tuple[int, int, int, int],
        start_offset: int = -1,
        state_epoch: int = 1,
        leader_epoch: int = 0,
        complete: int = -1,
        version: int = 1,
    ) -> ErrorCode:
        states = tuple(StateBatch(*batch) for batch in batches)
        change = ShareChange(state_epoch, leader_epoch, start_offset, states, complete)
        request = messages.write_request(self.key, change)
        return _code(
            messages.refusal_of(self.asker.ask(request, version, WriteShareGroupStateResponse))
        )

    def delete(self) -> ErrorCode:
        request = messages.delete_request(self.key)
        return _code(messages.refusal_of(self.asker.ask(request, 0, DeleteShareGroupStateResponse)))

    def summary(self, version: int = 1) -> ShareSummary | ErrorCode:
        request = messages.summary_request(self.key, -1)
        answer = self.asker.ask(request, version, ReadShareGroupStateSummaryResponse)
        found = messages.summary_of(answer)
        return found.error_code if isinstance(found, Refusal) else found

    def batches(self) -> Sequence[tuple[int, ...]]:
        """The batches of the state."""
        state = self.read()
        assert isinstance(state, ShareState)
        return [tuple(batch) for batch in state.batches]


def _code(refusal: Refusal | None) -> ErrorCode:
    return ErrorCode.NONE if refusal is None else refusal.error_code


def share_partition(
    asker: Asker, topic_id: UUID, partition: int = 0, group: str = ""
) -> SharePartitionAsker:
    """A share-partition whose coordinator is ready."""
    key = ShareKey(group or fresh_name("share"), topic_id, partition)
    assert find_shares(asker, key_text(key)) == [ErrorCode.NONE]
    ready = SharePartitionAsker(asker, key)
    # Kafka names a coordinator before it coordinates.
    asker.until(lambda: ready.summary() not in (*WAITING, ErrorCode.NOT_COORDINATOR))
    return ready
