"""`NodePushBroker`: `edge.push.ports.PushBroker` on this broker's services.

Publishes, commits and committed offsets go through the handlers of Kafka's APIs, so they have the
same checks, errors and guarantees: a publish is a Produce with acks all, a commit an OffsetCommit
of a group without members. Reads see the records that a consumer with `read_committed` sees.

It serves partitions that this broker leads; the answer to SUBSCRIBE names the leaders of others.
Quotas of Kafka clients do not count push.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar, cast

from penstock.broker.answers import Answer
from penstock.broker.context import BrokerServices, RequestContext
from penstock.broker.error_mapping import code_of
from penstock.broker.handlers import produce
from penstock.broker.peer import Peer
from penstock.broker.quotas.limit_table import QuotaClient
from penstock.broker.quotas.quotas import RateQuota
from penstock.cluster.configs.topic_routing import topic_routing
from penstock.cluster.image import TopicImage
from penstock.core.deferred import Deferred
from penstock.core.errors import NotLeaderError, PenstockError, TooManyWaitersError
from penstock.core.limits import FETCH_WAIT_MS_MAX
from penstock.core.types import TopicPartition
from penstock.edge.push.ports import PartitionView
from penstock.edge.push.reactions import OpenedTopic
from penstock.edge.push.reads import AGAIN
from penstock.edge.push.record_runs import Aborted, LogRead, Version
from penstock.node.push.push_door import PROCESS_DOOR
from penstock.node.push.push_elsewhere import named_brokers, push_addresses
from penstock.node.push.push_offsets import PushOffsets
from penstock.node.push.push_queues import PushQueues
from penstock.node.push.push_refusals import refused
from penstock.node.push.queue_member import NodeQueueMember
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
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
"""The last version that names topics and not their ids."""
Result = TypeVar("Result")


class NodePushBroker:
    """`edge.push.ports.PushBroker`; clients are `Peer`s."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._unchecked = replace(services, access=None)
        """For clients within this process."""
        self._replicas = services.replicas
        self._queues = PushQueues(services)
        self._offsets = PushOffsets(services, self._context)

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
        topic, here, elsewhere = self._topic(client, request)
        positions: dict[int, int] = {}
        uncommitted: dict[int, int] = {}
        if not request.publish:
            positions, uncommitted = await self._positions(client, request, here, elsewhere)
        return replace(
            self._opened(topic, here, elsewhere), positions=positions, uncommitted=uncommitted
        )

    def _opened(
        self, topic: TopicImage, here: dict[int, HostedPartition], elsewhere: dict[int, int]
    ) -> OpenedTopic:
        sizes = [one.rules.batch_bytes_max for one in here.values()]
        default = self._services.settings.topic_defaults.message_bytes_max
        return OpenedTopic(
            partition_count=len(topic.partitions),
            positions={},
            message_bytes_max=max(sizes, default=default) + DATA_BYTES_MIN,
            uncommitted={},
            elsewhere=elsewhere,
            addresses=push_addresses(self._services, elsewhere.values()),
            buffer_size=topic_routing(topic.settings).buffer_size,
        )

    def _topic(
        self, client: object, request: SubscribeRequest
    ) -> tuple[TopicImage, dict[int, HostedPartition], dict[int, int]]:
        """Return a topic that the client may use, its partitions here, and the other leaders."""
        self._check_access(client, request)
        topic = self._services.metadata.image.topic(request.topic)
        if topic is None:
            raise refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"the topic {request.topic} does not exist. Create it with "
                f"`penstock topic create {request.topic}`",
            )
        here, elsewhere = self._partitions(topic)
        if not here and not request.publish:
            raise refused(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"this broker leads no partition of {topic.name}; subscribe at "
                f"{named_brokers(self._services, elsewhere.values())}",
            )
        return topic, here, elsewhere

    # --- Queues ---

    def queue_group(self, request: SubscribeRequest) -> str | None:
        """Return the share group of a queue subscription; None: the subscription is fanout."""
        return self._queues.group_of(request)

    async def join(
        self,
        client: object,
        request: SubscribeRequest,
        group: str,
        lost: Callable[[Refusal], None],
    ) -> NodeQueueMember:
        """Return a member of a share group."""
        topic, here, elsewhere = self._topic(client, replace(request, group=group))
        shares = self._services.shares
        lock_ms = 0 if shares is None else shares.get().settings_of(group).lock_duration_ms
        opened = replace(
            self._opened(topic, here, elsewhere),
            queue_group=group,
            lock_seconds=lock_ms / 1000,
        )
        return await self._queues.join(
            request,
            group,
            topic,
            opened,
            lambda key, version: self._context(client, key, version),
            lambda: self.may_read(client, topic.name),
            lost,
        )

    # --- Quotas ---

    def charge_publish(self, client: object, size_bytes: int) -> float:
        """Count published bytes; return the seconds for which the client has to wait."""
        quotas = self._services.quotas
        return self._charged(client, quotas.produce, size_bytes) if quotas.is_active else 0.0

    def charge_delivery(self, client: object, size_bytes: int) -> float:
        """Count delivered bytes; return the seconds for which the client has to wait."""
        quotas = self._services.quotas
        return self._charged(client, quotas.fetch, size_bytes) if quotas.is_active else 0.0

    def _charged(self, client: object, quota: RateQuota, size_bytes: int) -> float:
        peer = cast("Peer", client)
        if peer.door == PROCESS_DOOR:
            return 0.0
        user = QuotaClient(peer.principal.name, CLIENT_ID)
        return quota.charge(user, size_bytes, self._services.quotas.now_ms()) / 1000

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
        self,
        client: object,
        request: SubscribeRequest,
        here: dict[int, HostedPartition],
        elsewhere: dict[int, int],
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Return where each partition starts, and the positions that have no commit yet."""
        start = request.start or ("latest" if request.group is None else "committed")
        if isinstance(start, dict):
            return self._given_positions(request.topic, start, here, elsewhere), {}
        earliest = {index: one.log.log_start_offset for index, one in here.items()}
        latest = {index: one.last_stable_offset for index, one in here.items()}
        if start != "committed":
            return earliest if start == "earliest" else latest, {}
        assert request.group is not None
        committed = await self._offsets.loaded(client, request.group, request.topic, sorted(here))
        positions = {
            index: min(max(committed[index], earliest[index]), latest[index])
            if index in committed
            else (earliest if request.reset == "earliest" else latest)[index]
            for index in here
        }
        return positions, {i: at for i, at in positions.items() if i not in committed}

    def _given_positions(
        self,
        topic: str,
        start: dict[int, int],
        here: dict[int, HostedPartition],
        elsewhere: dict[int, int],
    ) -> dict[int, int]:
        for index, offset in start.items():
            if index not in here:
                raise refused(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"'from' names partition {index} of {topic}, which this broker does not lead"
                    f"; subscribe at {named_brokers(self._services, [elsewhere[index]])}"
                    if index in elsewhere
                    else f"'from' names partition {index} of {topic}, which does not exist",
                )
            lowest, highest = here[index].log.log_start_offset, here[index].last_stable_offset
            if not lowest <= offset <= highest:
                raise refused(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"'from' names offset {offset} of {topic}-{index}, which has "
                    f"{lowest} to {highest}",
                )
        return dict(start)

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
            raise NotLeaderError(_why_not_led(hosted))
        return hosted

    def view(self, topic: str, partition: int) -> PartitionView:
        """Return the readable offsets of a partition."""
        hosted = self._hosted(topic, partition)
        return PartitionView(
            _version(hosted),
            hosted.log.log_start_offset,
            hosted.last_stable_offset,
            hosted.refreshes,
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
        await self._offsets.commit(client, group, topic, offsets)


def _why_not_led(hosted: HostedPartition) -> str:
    """Return why a partition cannot be read here; a mirror has no leader while it is changed."""
    if hosted.is_refreshing:
        return f"the log of {hosted.name} is being replaced by a refresh. {AGAIN}"
    if hosted.is_mirror:
        return f"the log of {hosted.name} is being cut, as its parent has other records. {AGAIN}"
    return f"this broker does not lead {hosted.name}. Subscribe at its leader"


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
