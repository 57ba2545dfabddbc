"""Attacks on coordinators: requests that wait for as long as their client says.

A JoinGroup waits for the other members up to its own rebalance timeout, a SyncGroup for the
leader. Both carry up to 2 MiB that the client chooses. Classic groups are enough: the new protocol
has no request that waits.
"""

import contextlib
import time

from penstock.core.limits import PARTITIONS_PER_TOPIC_MAX
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.bad_input.wire import Peer, decoded, well_formed
from tests.hostile.attacks import Attack, create_topic

JOIN_KEY, JOIN_VERSION, SYNC_VERSION = 11, 3, 3
LONG_MS = 1_800_000
LARGE_BYTES = 1_900_000


class GroupAttack(Attack):
    """Groups of its own for each strike."""

    def prepare(self) -> None:
        self._strikes = 0
        with Peer(self.port) as peer:
            for _ in range(100):
                answer = peer.call(FindCoordinatorRequest(key="hostile", key_type=0), 2)
                assert isinstance(answer, FindCoordinatorResponse)
                if answer.error_code == ErrorCode.NONE:
                    return
                time.sleep(0.1)

    def group_names(self, count: int) -> list[str]:
        """Names that no strike used before."""
        self._strikes += 1
        return [f"{self.name}-{self._strikes}-{number}" for number in range(count)]


def join(group: str, metadata: bytes, member: str = "", rebalance_ms: int = LONG_MS) -> bytes:
    """A JoinGroup that may wait for half an hour."""
    protocol = JoinGroupRequestProtocol(name="range", metadata=metadata)
    return well_formed(
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=LONG_MS,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member,
            protocol_type="consumer",
            protocols=(protocol,),
        ),
        JOIN_VERSION,
    )


class ParkedJoins(GroupAttack):
    """Members with large metadata wait for a first member that never joins again."""

    name = "parked-joins"

    def strike(self) -> None:
        metadata = bytes(LARGE_BYTES)
        with contextlib.ExitStack() as stack:
            for group in self.group_names(self.size(6)):
                first = stack.enter_context(Peer(self.port))
                first.send(join(group, b"x"))
                first.answer()
                for _ in range(self.size(16)):
                    peer = stack.enter_context(Peer(self.port))
                    peer.send(join(group, metadata))
                    self.sent += 1
            time.sleep(3.0)


class ParkedSyncs(GroupAttack):
    """Followers send large SyncGroups and wait for a leader that never sends its own."""

    name = "parked-syncs"

    def strike(self) -> None:
        with contextlib.ExitStack() as stack:
            for group in self.group_names(self.size(6)):
                peers = [stack.enter_context(Peer(self.port)) for _ in range(self.size(16) + 1)]
                for peer in peers:
                    peer.send(join(group, b"x", rebalance_ms=1_000))
                for peer in peers:
                    data = peer.answer()
                    if data is None:
                        continue
                    answer = decoded(JOIN_KEY, JOIN_VERSION, data)
                    assert isinstance(answer, JoinGroupResponse)
                    if answer.member_id != answer.leader:
                        peer.send(self._sync(group, answer))
                        self.sent += 1
            time.sleep(2.0)

    def _sync(self, group: str, joined: JoinGroupResponse) -> bytes:
        assignment = SyncGroupRequestAssignment(
            member_id=joined.member_id, assignment=bytes(LARGE_BYTES)
        )
        return well_formed(
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=(assignment,),
            ),
            SYNC_VERSION,
        )


class WideCommits(GroupAttack):
    """Offset commits with as many partitions as one may have, and with more."""

    name = "wide-commits"

    def prepare(self) -> None:
        super().prepare()
        create_topic(self.port, "wide-commits", PARTITIONS_PER_TOPIC_MAX)

    def strike(self) -> None:
        (group,) = self.group_names(1)
        with Peer(self.port) as peer:
            for count in (PARTITIONS_PER_TOPIC_MAX, 60_000):
                self.exchange(peer, self._commit(group, self.size(count)))

    def _commit(self, group: str, count: int) -> bytes:
        partitions = tuple(
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=1, committed_metadata=None
            )
            for index in range(count)
        )
        topic = OffsetCommitRequestTopic(name="wide-commits", partitions=partitions)
        return well_formed(OffsetCommitRequest(group_id=group, member_id="", topics=(topic,)), 5)
