"""Members of a consumer group: they share the keys of a topic, poll, and commit their positions.

`GroupMember` joins with ConsumerGroupHeartbeat, and joins again under another name when the
coordinator does not know it. Each assignment is a process of its own in the history. A commit is
`ok` when the coordinator acknowledged it, `fail` when it certainly was not executed, else `info`.

During faults a member may read older positions, from a coordinator that does not know yet that
another one has replaced it: that is within the promises, and not in the history. `read_positions`
reads the newest ones: an acknowledged write proves that the coordinator is the present one.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from penstock.client.coordinators import CoordinatorKind
from penstock.client.groups.group_calls import commit_offsets
from penstock.client.transport.call import Call, raise_error
from penstock.core.errors import BrokerAnswerError, BrokerUnreachableError, PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import consumer_group_heartbeat, offset_commit, offset_fetch
from tests.checker.history import Commit, Committed
from tests.cluster_sim.clients import CommittedConsumer, SimulatedClient

GROUP: Final = "members"
HEARTBEAT_SECONDS: Final = 0.5
COMMIT_SHARE: Final = 0.5
"""Share of the polls that are followed by a commit."""

REFUSED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
    }
)
"""Codes of a commit that was certainly not executed. NOT_COORDINATOR is not one of them: a
coordinator that is replaced sends it for records that its successor has."""
LOST_MEMBERSHIP: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class GroupMember(CommittedConsumer):
    """One member after the other of the group."""

    _member_id = ""
    _epoch = 0
    _positions: dict[int, int] | None = None
    """The position of each assigned key; None before the first assignment is taken over."""
    _next_heartbeat_seconds = 0.0

    async def run(self) -> None:
        """Be a member until the end."""
        number = 0
        while not self.is_over:
            number += 1
            self._member_id, self._epoch, self._positions = f"{self.name}-{number}", 0, None
            self._next_heartbeat_seconds = 0.0
            try:
                while not self.is_over:
                    await self._step()
                    await self.pause(0.3)
            except BrokerAnswerError as error:
                if error.code not in LOST_MEMBERSHIP:
                    raise

    async def _step(self) -> None:
        """Send a heartbeat if it is due, then poll and commit."""
        if self.loop.time() >= self._next_heartbeat_seconds:
            await self._beat()
        if not self._positions:
            return
        await self.poll(self._positions)
        if self.random.random() < COMMIT_SHARE:
            await self._commit(dict(self._positions))

    async def _beat(self) -> None:
        owned = None if self._positions is None else sorted(self._positions)
        call = heartbeat(
            self._member_id,
            self._epoch,
            next(iter(self.keys.values())).topic,
            self._owned_topics(owned),
        )
        try:
            answer = await self.ask(CoordinatorKind.GROUP, GROUP, call)
        except PenstockError as error:
            if isinstance(error, BrokerAnswerError) and error.code in LOST_MEMBERSHIP:
                raise
            return
        self._next_heartbeat_seconds = self.loop.time() + HEARTBEAT_SECONDS
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            await self._assigned(
                sorted(number for one in topics for number in one.partitions), topics
            )

    def _owned_topics(
        self, owned: Sequence[int] | None
    ) -> tuple[consumer_group_heartbeat.RequestTopicPartitions, ...]:
        if not owned:
            return ()
        numbers = tuple(self.keys[key].partition for key in owned)
        messages = consumer_group_heartbeat
        return (messages.RequestTopicPartitions(topic_id=self._topic_id, partitions=numbers),)

    _topic_id: UUID | None = None

    async def _assigned(
        self,
        partitions: list[int],
        topics: Sequence[consumer_group_heartbeat.ResponseTopicPartitions],
    ) -> None:
        """Take over an assignment: keys that stay keep their positions."""
        if topics:
            self._topic_id = topics[0].topic_id
        keys = [key for key, at in self.keys.items() if at.partition in partitions]
        before = self._positions or {}
        if self._positions is not None and sorted(before) == keys:
            return
        kept = {key: before[key] for key in keys if key in before}
        if len(kept) < len(keys):
            wanted = [self.keys[key] for key in keys]
            call = fetch_positions(GROUP, wanted, self._member_id, self._epoch)
            try:
                found = await self.ask(CoordinatorKind.GROUP, GROUP, call)
            except PenstockError as error:
                if isinstance(error, BrokerAnswerError) and error.code in LOST_MEMBERSHIP:
                    raise
                # The next heartbeat repeats the assignment: the old keys are still reported.
                return
            kept = {key: kept.get(key, found.get(self.keys[key], 0)) for key in keys}
        self.process = self.recorder.new_process()
        self.recorder.add(self.process, "invoke", "subscribe", keys=keys)
        self.recorder.add(self.process, "ok", "subscribe", keys=keys)
        self._positions = kept
        self._next_heartbeat_seconds = 0.0

    async def _commit(self, positions: dict[int, int]) -> None:
        action = Commit(positions)
        self.recorder.add(self.process, "invoke", "commit", [action])
        call = commit_as_member(
            GROUP,
            self._member_id,
            self._epoch,
            {self.keys[key]: position for key, position in positions.items()},
        )
        try:
            await self.ask(CoordinatorKind.GROUP, GROUP, call)
        except PenstockError as error:
            code = error.code if isinstance(error, BrokerAnswerError) else None
            is_refused = isinstance(error, BrokerUnreachableError) or code in REFUSED
            self.recorder.add(self.process, "fail" if is_refused else "info", "commit", [action])
            if not is_refused:
                self._go_on_as_another_process()
            if code in LOST_MEMBERSHIP:
                raise
            return
        self.recorder.add(self.process, "ok", "commit", [action])

    def _go_on_as_another_process(self) -> None:
        """A process with an operation of unknown outcome has no later one."""
        assert self._positions is not None
        self.process = self.recorder.new_process()
        keys = sorted(self._positions)
        self.recorder.add(self.process, "invoke", "subscribe", keys=keys)
        self.recorder.add(self.process, "ok", "subscribe", keys=keys)


async def read_positions(
    client: SimulatedClient,
    group: str,
    probe: TopicPartition | None,
    keys: Mapping[int, TopicPartition],
) -> dict[int, int | None]:
    """Return the newest committed positions, and note them in the history.

    `probe` is a partition without positions of its own. Its commit proves that the coordinator is
    the present one. A group with members refuses it: without one, nothing may fail any more.
    """
    client.process = client.recorder.new_process()
    client.recorder.add(client.process, "invoke", "committed")
    try:
        if probe is not None:
            await client.ask(CoordinatorKind.GROUP, group, commit_offsets(group, {probe: 0}))
        call = fetch_positions(group, list(keys.values()))
        found = await client.ask(CoordinatorKind.GROUP, group, call)
    except PenstockError:
        client.recorder.add(client.process, "fail", "committed")
        raise
    positions = {key: found.get(at) for key, at in keys.items()}
    client.recorder.add(client.process, "ok", "committed", [Committed(positions)])
    return positions


# --- Calls ---


def heartbeat(
    member_id: str,
    epoch: int,
    topic: str,
    owned: tuple[consumer_group_heartbeat.RequestTopicPartitions, ...],
) -> Call[consumer_group_heartbeat.ConsumerGroupHeartbeatResponse]:
    """Join the group with epoch 0, or stay in it."""
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=5_000,
        subscribed_topic_names=(topic,),
        topic_partitions=owned,
    )

    def read(
        answer: consumer_group_heartbeat.ConsumerGroupHeartbeatResponse,
    ) -> consumer_group_heartbeat.ConsumerGroupHeartbeatResponse:
        raise_error(answer.error_code, answer.error_message, member_id)
        return answer

    return Call(request, consumer_group_heartbeat.ConsumerGroupHeartbeatResponse, read)


def fetch_positions(
    group: str,
    partitions: Sequence[TopicPartition],
    member_id: str | None = None,
    epoch: int = -1,
) -> Call[dict[TopicPartition, int]]:
    """Fetch committed positions of one topic; refused while a transaction changes one of them.

    The partitions are named: an answer about all of them leaves out the ones that have no position
    before such a transaction, as Apache Kafka's does.
    """
    topic = offset_fetch.OffsetFetchRequestTopics(
        name=partitions[0].topic, partition_indexes=tuple(at.partition for at in partitions)
    )
    request = offset_fetch.OffsetFetchRequest(
        groups=(
            offset_fetch.OffsetFetchRequestGroup(
                group_id=group, member_id=member_id, member_epoch=epoch, topics=(topic,)
            ),
        ),
        require_stable=True,
    )

    def read(answer: offset_fetch.OffsetFetchResponse) -> dict[TopicPartition, int]:
        (found,) = answer.groups
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        raise_error(found.error_code, None, group)
        positions = {}
        for topic in found.topics:
            for part in topic.partitions:
                raise_error(part.error_code, None, group)
                if part.committed_offset >= 0:
                    at = TopicPartition(topic.name, part.partition_index)
                    positions[at] = part.committed_offset
        return positions

    return Call(request, offset_fetch.OffsetFetchResponse, read, 9)


def commit_as_member(
    group: str, member_id: str, epoch: int, positions: Mapping[TopicPartition, int]
) -> Call[None]:
    """Commit positions of one topic as a member of the group."""
    request = offset_commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=(
            offset_commit.OffsetCommitRequestTopic(
                name=next(iter(positions)).topic,
                partitions=tuple(
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=at.partition,
                        committed_offset=position,
                        committed_metadata="",
                    )
                    for at, position in positions.items()
                ),
            ),
        ),
    )

    def read(answer: offset_commit.OffsetCommitResponse) -> None:
        for topic in answer.topics:
            for part in topic.partitions:
                raise_error(part.error_code, None, member_id)

    return Call(request, offset_commit.OffsetCommitResponse, read, 9)
