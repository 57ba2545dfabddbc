"""`OffsetLookUp`: the open requests, their leaders and the results of an offset look-up (pure).

Both clusters look up offsets with it. They send each leader one request for all its partitions,
keep the results, and retry only the failed partitions. It does NOT send requests and does not
decide how often to retry.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.client import calls
from penstock.client.cluster_view import Leader
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call, raise_error
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.list_offsets import ListOffsetsPartitionResponse

Answers = dict[TopicPartition, ListOffsetsPartitionResponse]


class FoundOffset(NamedTuple):
    """A leader's answer to an offset request by time; -1 for a missing value."""

    offset: int
    leader_epoch: int
    timestamp_ms: int


class OffsetLookUp:
    """One look-up, until all offsets are found."""

    def __init__(
        self, timestamps: Mapping[TopicPartition, int], *, is_read_committed: bool
    ) -> None:
        self._timestamps = timestamps
        self._is_read_committed = is_read_committed
        self._found: dict[TopicPartition, FoundOffset] = {}
        self._problems: dict[TopicPartition, ErrorCode] = {}

    def missing(self) -> list[TopicPartition]:
        """Return the partitions that have no result yet."""
        return [at for at in self._timestamps if at not in self._found]

    def ask(self, leaders: Mapping[TopicPartition, Leader]) -> dict[Address, Call[Answers]]:
        """Return one call for each leader of the missing partitions."""
        self._problems.clear()
        grouped: dict[Address, dict[TopicPartition, int]] = {}
        for at in self.missing():
            grouped.setdefault(leaders[at].address, {})[at] = self._timestamps[at]
        epochs = {at: leader.leader_epoch for at, leader in leaders.items()}
        return {
            address: calls.find_offsets(
                asked, is_read_committed=self._is_read_committed, leader_epochs=epochs
            )
            for address, asked in grouped.items()
        }

    def take(self, answers: Answers) -> None:
        """Store the answers of one leader."""
        for at, one in answers.items():
            if one.error_code == ErrorCode.NONE:
                self._found[at] = FoundOffset(one.offset, one.leader_epoch, one.timestamp)
            else:
                self._problems[at] = one.error_code

    def result(self) -> dict[TopicPartition, FoundOffset]:
        """Return all results; raise `BrokerAnswerError` while a partition is missing."""
        for at in self.missing():
            raise_error(self._problems.get(at, ErrorCode.NONE), None, str(at))
            raise_error(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer leaves it out", str(at))
        return {at: self._found[at] for at in self._timestamps}
