"""`OffsetLookUp`: which offsets are still to be asked for, from whom, and what is known (pure).

Both clusters look up offsets with it: ask each leader once for all its partitions, keep what is
answered, and ask again only for what failed. It does NOT ask and does not decide how often.
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
    """What a leader answers when it is asked for an offset by time; -1 for what there is not."""

    offset: int
    leader_epoch: int
    timestamp_ms: int


class OffsetLookUp:
    """One look-up, until everything is found."""

    def __init__(
        self, timestamps: Mapping[TopicPartition, int], *, is_read_committed: bool
    ) -> None:
        self._timestamps = timestamps
        self._is_read_committed = is_read_committed
        self._found: dict[TopicPartition, FoundOffset] = {}
        self._problems: dict[TopicPartition, ErrorCode] = {}

    def missing(self) -> list[TopicPartition]:
        """The partitions that are still to be asked for."""
        return [at for at in self._timestamps if at not in self._found]

    def ask(self, leaders: Mapping[TopicPartition, Leader]) -> dict[Address, Call[Answers]]:
        """One call for each of the leaders of what is missing."""
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
        """Keep what one leader answered."""
        for at, one in answers.items():
            if one.error_code == ErrorCode.NONE:
                self._found[at] = FoundOffset(one.offset, one.leader_epoch, one.timestamp)
            else:
                self._problems[at] = one.error_code

    def result(self) -> dict[TopicPartition, FoundOffset]:
        """Everything; `BrokerAnswerError` while something is missing."""
        for at in self.missing():
            raise_error(self._problems.get(at, ErrorCode.NONE), None, str(at))
            raise_error(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer leaves it out", str(at))
        return {at: self._found[at] for at in self._timestamps}
