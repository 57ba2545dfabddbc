"""`NodePushBroker`: `edge.push.ports.PushBroker` on this broker's services.

Publishes, commits and committed offsets go through the handlers of Kafka's APIs, so they have the
same checks, errors and guarantees: a publish is a Produce with acks all, a commit an OffsetCommit
of a group without members. Reads see the records that a consumer with `read_committed` sees.

It serves partitions that this broker leads; the answer to SUBSCRIBE names the leaders of others.
Quotas of Kafka clients do not count push.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar, cast

from penstock.broker.answers import Answer
from penstock.broker.context import BrokerServices, RequestContext
from penstock.broker.error_mapping import code_of
from penstock.broker.handlers import offset_commit, offset_fetch, produce
from penstock.broker.peer import Peer
from penstock.broker.pieces import settled
from penstock.cluster.image import TopicImage
from penstock.core.deferred import Deferred
from penstock.core.errors import NotLeaderError, PenstockError, TooManyWaitersError
from penstock.core.limits import FETCH_WAIT_MS_MAX
from penstock.core.types import TopicPartition
from penstock.edge.push.ports import PartitionView, PushRefusedError
from penstock.edge.push.reactions import OpenedTopic
from penstock.edge.push.record_runs import Aborted, LogRead, Version
from penstock.node.push.push_door import PROCESS_DOOR
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.protocol.push.data import DATA_BYTES_MIN
from penstock.protocol.push.payloads import Refusal, SubscribeRequest
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.partition import NO_EPOCH
from penstock.replication.read_result import PartitionRead
from penstock.replication.waits import FetchWait
from penstock.security.acls.values import Operation, ResourceType

logger = logging.getLogger(__name__)

CLIENT_ID: Final = "penstock-push"
PUBLISH_TIMEOUT_MS: Final = 30_000
"""How long a publish waits for its commit, as the default of Kafka's producers."""
PRODUCE_VERSION: Final = 12
COMMIT_VERSION: Final = 9
FETCH_OFFSETS_VERSION: Final = 9
"""The last versions that name topics and not their ids."""
LOADING: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.name,
)
LOADING_TRIES: Final = 20
LOADING_PAUSE_SECONDS: Final = 0.1
Result = TypeVar("Result")


def refused(code: ErrorCode, error: str) -> PushRefusedError:
    """Return the error that refuses a request."""
    return PushRefusedError(Refusal(error=error, code=code.name, retriable=code.retriable))


class NodePushBroker:
    """`edge.push.ports.PushBroker`; clients are `Peer`s."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._unchecked = replace(services, access=None)
        """For clients within this process."""
        self._replicas = services.replicas

    def now_ms(self) -> int:
        """Return the time of the broker."""
        return self._services.clock.now_ms()

    def _context(self, client: object, api_key: ApiKey, version: int) -> RequestContext:
        assert isinstance(client, Peer)
        return RequestContext(
            self._unchecked if client.door == PROCESS_DOOR else self._services,
            version,
            CLIENT_ID,
            is_version_unsupported=False,
            peer=client,
            api_key=api_key,
        )

    # --- Subscriptions ---

    async def open(self, client: object, request: SubscribeRequest) -> OpenedTopic:
        """Return the topic of a subscription."""
        self._check_access(client, request)
        if request.mode == "queue":
            raise refused(
                ErrorCode.UNSUPPORTED_VERSION,
                "mode queue is not served over push; use a share group of Kafka's protocol, or "
                "mode fanout",
            )
        topic = self._services.metadata.image.topic(request.topic)
        if topic is None:
            raise refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"the topic {request.topic} does not exist. Create it with "
                f"`penstock topic create {request.topic}`",
            )
        here, elsewhere = self._partitions(topic)
        positions: dict[int, int] = {}
        uncommitted: dict[int, int] = {}
        if not request.publish:
            positions, uncommitted = await self._positions(client, request, here)
        sizes = [one.rules.batch_bytes_max for one in here.values()]
        default = self._services.settings.topic_defaults.message_bytes_max
        return OpenedTopic(
            partition_count=len(topic.partitions),
            positions=positions,
            message_bytes_max=max(sizes, default=default) + DATA_BYTES_MIN,
            uncommitted=uncommitted,
            elsewhere=elsewhere,
        )

    def _check_access(self, client: object, request: SubscribeRequest) -> None:
        api = ApiKey.PRODUCE if request.publish else ApiKey.FETCH
        operation = Operation.WRITE if request.publish else Operation.READ
        context = self._context(client, api, PRODUCE_VERSION)
        if not context.allows(operation, ResourceType.TOPIC, request.topic):
            raise refused(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                f"{operation.name} on the topic {request.topic} is denied",
            )
        group = None if request.publish else request.group
        if group is not None and not context.allows(Operation.READ, ResourceType.GROUP, group):
            raise refused(
                ErrorCode.GROUP_AUTHORIZATION_FAILED, f"READ on the group {group} is denied"
            )

    def _partitions(self, topic: TopicImage) -> tuple[dict[int, HostedPartition], dict[int, int]]:
        """Return the partitions that this broker leads, and the leaders of the others."""
        here: dict[int, HostedPartition] = {}
        elsewhere: dict[int, int] = {}
        for index, image in enumerate(topic.partitions):
            hosted = self._replicas.find(topic.name, index)
            if hosted is not None and hosted.state.is_leader:
                here[index] = hosted
            else:
                elsewhere[index] = image.leader
        return here, elsewhere

    async def _positions(
        self, client: object, request: SubscribeRequest, here: dict[int, HostedPartition]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Return where each partition starts, and the positions that have no commit yet."""
        start = request.start or ("latest" if request.group is None else "committed")
        if isinstance(start, dict):
            return self._given_positions(request.topic, start, here), {}
        earliest = {index: one.log.log_start_offset for index, one in here.items()}
        latest = {index: one.last_stable_offset for index, one in here.items()}
        if start != "committed":
            return earliest if start == "earliest" else latest, {}
        assert request.group is not None
        committed = await self._loaded_offsets(client, request.group, request.topic, sorted(here))
        positions = {
            index: min(max(committed[index], earliest[index]), latest[index])
            if index in committed
            else latest[index]
            for index in here
        }
        return positions, {i: at for i, at in positions.items() if i not in committed}

    def _given_positions(
        self, topic: str, start: dict[int, int], here: dict[int, HostedPartition]
    ) -> dict[int, int]:
        for index, offset in start.items():
            if index not in here:
                raise refused(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"'from' names partition {index} of {topic}, which this broker does not lead",
                )
            lowest, highest = here[index].log.log_start_offset, here[index].last_stable_offset
            if not lowest <= offset <= highest:
                raise refused(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"'from' names offset {offset} of {topic}-{index}, which has "
                    f"{lowest} to {highest}",
                )
        return dict(start)

    async def _loaded_offsets(
        self, client: object, group: str, topic: str, partitions: list[int]
    ) -> dict[int, int]:
        """Return the committed offsets of a group; wait a moment for a coordinator that loads."""
        error = await self._services.coordinators.ensure_topic("group")
        if error is not None:
            raise refused(code_of(error), f"the offsets of group {group} cannot be read: {error}")
        for left in reversed(range(LOADING_TRIES)):
            try:
                return await self._committed(client, group, topic, partitions)
            except PushRefusedError as refusal:
                if not left or refusal.refusal.code not in LOADING:
                    raise
            await asyncio.sleep(LOADING_PAUSE_SECONDS)
        raise AssertionError("the last try raises")

    async def _committed(
        self, client: object, group: str, topic: str, partitions: list[int]
    ) -> dict[int, int]:
        """Return the committed offsets of a group; partitions without one are missing."""
        context = self._context(client, ApiKey.OFFSET_FETCH, FETCH_OFFSETS_VERSION)
        named = OffsetFetchRequestTopics(name=topic, partition_indexes=tuple(partitions))
        asked = OffsetFetchRequest(
            groups=(OffsetFetchRequestGroup(group_id=group, topics=(named,)),), require_stable=True
        )
        (answer,) = (await offset_fetch.handle(asked, context)).groups
        rows = [row for one in answer.topics for row in one.partitions]
        for code in (answer.error_code, *(row.error_code for row in rows)):
            if code is not ErrorCode.NONE:
                raise refused(code, f"the offsets of group {group} cannot be read: {code.name}")
        return {
            row.partition_index: row.committed_offset for row in rows if row.committed_offset >= 0
        }

    def may_read(self, client: object, topic: str) -> bool:
        """Whether the rules in force still allow the client to read a topic."""
        access = self._services.access
        if access is None:
            return True
        peer = cast("Peer", client)
        return peer.door == PROCESS_DOOR or access.allows(
            peer, ApiKey.FETCH, Operation.READ, ResourceType.TOPIC, topic
        )

    # --- Reads ---

    def _hosted(self, topic: str, partition: int) -> HostedPartition:
        hosted = self._replicas.partition(TopicPartition(topic, partition))
        if not hosted.state.is_leader:
            raise NotLeaderError(f"this broker does not lead {hosted.name}")
        return hosted

    def view(self, topic: str, partition: int) -> PartitionView:
        """Return the readable offsets of a partition."""
        hosted = self._hosted(topic, partition)
        return PartitionView(
            _version(hosted), hosted.log.log_start_offset, hosted.last_stable_offset
        )

    def read(self, topic: str, partition: int, offset: int, bytes_max: int) -> LogRead:
        """Read from the page cache; raise `BlockingIOError` on a miss."""
        hosted = self._hosted(topic, partition)
        found = self._replicas.read(
            hosted,
            offset,
            bytes_max,
            current_leader_epoch=NO_EPOCH,
            last_fetched_epoch=NO_EPOCH,
            at_least_one=True,
            reads_committed=True,
        )
        return self._found(hosted, offset, found)

    async def read_cold(self, topic: str, partition: int, offset: int, bytes_max: int) -> LogRead:
        """Read, and wait for the disk."""
        hosted = self._hosted(topic, partition)
        found = await self._services.cold_reader.read_cold(
            hosted,
            offset,
            bytes_max,
            current_leader_epoch=NO_EPOCH,
            last_fetched_epoch=NO_EPOCH,
            at_least_one=True,
            reads_committed=True,
        )
        return self._found(hosted, offset, found)

    def _found(self, hosted: HostedPartition, offset: int, found: PartitionRead) -> LogRead:
        self._replicas.fetched(hosted, len(found.records), None)
        return LogRead(
            hosted.name.partition,
            offset,
            found.records,
            [Aborted(one.producer_id, one.first_offset, one.last_offset) for one in found.aborted],
            _version(hosted),
        )

    async def run_heavy(self, call: Callable[[], Result], size_bytes: int) -> Result:
        """Run a call on a thread and return its result."""
        return await self._services.heavy_work.run(call, size_bytes, None)

    def wait(
        self, topic: str, partition: int, on_news: Callable[[], None]
    ) -> Callable[[], None] | None:
        """Call `on_news` once, when more can be read or anything changed."""
        hosted = self._replicas.find(topic, partition)
        if hosted is None:
            return None
        wait = FetchWait(1, on_news, reads_committed=True)
        try:
            is_parked = self._replicas.wait_bytes(wait, [hosted], FETCH_WAIT_MS_MAX)
        except TooManyWaitersError:
            return None
        return (lambda: self._replicas.waits.cancel(wait)) if is_parked else None

    # --- Writes ---

    def publish(
        self,
        client: object,
        topic: str,
        partition: int,
        batch: bytes | bytearray,
        done: Callable[[int | Refusal], None],
    ) -> None:
        """Append a batch; `done` gets its first offset when it is on disk."""
        request = ProduceRequest(
            acks=-1,
            timeout_ms=PUBLISH_TIMEOUT_MS,
            topic_data=(
                TopicProduceData(
                    name=topic,
                    partition_data=(PartitionProduceData(index=partition, records=batch),),
                ),
            ),
        )
        context = self._context(client, ApiKey.PRODUCE, PRODUCE_VERSION)
        try:
            answer = produce.handle(request, context)
        except PenstockError as error:
            code = code_of(error)
            done(Refusal(error=str(error), code=code.name, retriable=code.retriable))
            return
        if isinstance(answer, Deferred):
            answer.then(lambda late: done(_outcome(late)))
        else:
            done(_outcome(answer))

    async def commit(self, client: object, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Commit offsets of a group."""
        request = OffsetCommitRequest(
            group_id=group,
            member_id="",
            topics=(
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=tuple(
                        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
                        for index, offset in offsets.items()
                    ),
                ),
            ),
        )
        context = self._context(client, ApiKey.OFFSET_COMMIT, COMMIT_VERSION)
        answer = await settled(offset_commit.handle(request, context))
        if not isinstance(answer, OffsetCommitResponse):
            raise refused(ErrorCode.UNKNOWN_SERVER_ERROR, "the commit failed by a defect")
        for one in answer.topics:
            for row in one.partitions:
                if row.error_code is not ErrorCode.NONE:
                    raise refused(
                        row.error_code,
                        f"group {group} cannot commit {topic}-{row.partition_index}: "
                        f"{row.error_code.name}",
                    )


def _version(hosted: HostedPartition) -> Version:
    # A mirror is cut in the epoch of its leader, if its parent has other records.
    return hosted.topic_id.bytes, hosted.state.leader_epoch, hosted.log.truncations


def _outcome(answer: Answer) -> int | Refusal:
    """Return the first offset of a publish, or why it was refused."""
    if not isinstance(answer, ProduceResponse):
        return Refusal(error="the publish failed by a defect", code="UNKNOWN_SERVER_ERROR")
    ((row,),) = (topic.partition_responses for topic in answer.responses)
    code = row.error_code
    if code is ErrorCode.NONE:
        return row.base_offset
    return Refusal(
        error=row.error_message or f"the record was refused: {code.name}",
        code=code.name,
        retriable=code.retriable,
    )
