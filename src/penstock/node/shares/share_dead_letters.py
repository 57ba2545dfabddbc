"""`DeadLetters`: writes dead letters of share groups to their topics (KIP-1191).

A letter is an ordinary record: it is appended with acks=all by the leader of the dead-letter
partition, on this broker or, over the connections between brokers, on another one. Guarantees:

- `write` returns when the letters are committed, and raises `DeadLetterError` otherwise. A letter
  may then be in the topic anyway: a second write is possible, a lost letter is not;
- the topic has the prefix of the settings and `errors.deadletterqueue.group.enable=true`, or it is
  not written; a missing topic is created only with `groups.dead_letter_auto_create`;
- a group never writes letters into the topic that it reads;
- few writes are under way at a time, and each holds a bounded number of bytes.

The problem of each share-partition is kept for health until a letter of it is written, or its group
has no members here. Retries are NOT decided here: `letter_sender` does.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from penstock.broker.context import BrokerServices, RequestContext
from penstock.broker.handlers import produce
from penstock.broker.pieces import settled
from penstock.cluster.configs.group_configs import DeliverySettings
from penstock.cluster.configs.topic_config_table import DEAD_LETTERS_ENABLE
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import MetadataImage, TopicImage
from penstock.coordinator.shares.delivery.share_delivery import Letter
from penstock.core.errors import PenstockError, TopicExistsError
from penstock.node.shares.letter_records import (
    Copies,
    Source,
    build_letters,
    copied_records,
    offsets_of,
)
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.replication.hosted_partition import HostedPartition

if TYPE_CHECKING:
    from penstock.node.peers.peer_connections import PeerConnections

logger = logging.getLogger(__name__)

WRITES_MAX: Final = 8
"""Writes under way on this broker. Each holds a read of the source, its copies and a batch."""
READ_BYTES_MAX: Final = 1_048_576
"""Bytes of the source that one write reads, or one batch."""
TIMEOUT_MS: Final = 30_000
PRODUCE_VERSION: Final = 12
"""The last version that names topics and not their ids."""
CLIENT_ID: Final = "penstock-dead-letters"
LANE: Final = "dead-letters"
GROUPS_MAX: Final = 2_000
"""Groups whose numbers are kept, one for each share session; and share-partitions with problems."""
_CREATED_WITH: Final = {DEAD_LETTERS_ENABLE: "true", "message.timestamp.type": "CreateTime"}


class DeadLetterError(Exception):
    """Letters could not be written; the text is for the log and for health."""


class LetterWriter(Protocol):
    """Writes letters."""

    async def write(
        self,
        source: Source,
        hosted: HostedPartition,
        settings: DeliverySettings,
        letters: Sequence[Letter],
    ) -> int:
        """Return how many of the first letters are written; raise `DeadLetterError` for none."""
        ...

    def failed(self, source: Source, problem: str) -> None:
        """Note the problem of a share-partition."""
        ...


class DeadLetters:
    """`LetterWriter` of this broker."""

    def __init__(self, services: BrokerServices, peers: "PeerConnections | None") -> None:
        """`peers` is None for a broker alone."""
        self._services = replace(services, access=None)
        """The broker writes, not a client: the settings of the topic are the permission."""
        self._peers = peers
        self._turns = asyncio.Semaphore(WRITES_MAX)
        self._problems: dict[Source, str] = {}
        self.written: Counter[str] = Counter()
        """Letters by group."""
        self.failures: Counter[str] = Counter()
        """Failed writes by group."""

    @property
    def problems(self) -> tuple[str, ...]:
        """The groups whose letters cannot be written, with the reasons."""
        return tuple(dict.fromkeys(self._problems.values()))

    def failed(self, source: Source, problem: str) -> None:
        """Note the problem of a share-partition; it is logged when it is new."""
        text = f"dead letters of share group {source.group!r} wait: {problem}"
        if self._problems.get(source) != text:
            logger.warning("%s", text)
        if source in self._problems or len(self._problems) < GROUPS_MAX:
            self._problems[source] = text
        self._count(self.failures, source.group, 1)

    def forget(self, group: str) -> None:
        """Forget the problems of a group that has no members here."""
        for source in [one for one in self._problems if one.group == group]:
            del self._problems[source]

    def _count(self, counts: Counter[str], group: str, count: int) -> None:
        # The numbers of further groups are joined under one name, so the sum stays right.
        counts[group if group in counts or len(counts) < GROUPS_MAX else "…"] += count

    async def write(
        self,
        source: Source,
        hosted: HostedPartition,
        settings: DeliverySettings,
        letters: Sequence[Letter],
    ) -> int:
        """Write the first letters; see `LetterWriter`."""
        async with self._turns:
            try:
                topic = await self._topic(settings.dead_letter_topic, source)
                copies = None
                if settings.copies_dead_letters:
                    copies = await self._copies(hosted, letters)
                partition = source.partition % len(topic.partitions)
                batch, count = build_letters(
                    source,
                    letters,
                    copies,
                    now_ms=self._services.clock.now_ms(),
                    batch_bytes_max=_batch_bytes_max(topic, self._services),
                )
                await self._append(topic, partition, batch)
            except PenstockError as error:
                raise DeadLetterError(str(error)) from error
        self._problems.pop(source, None)
        self._count(self.written, source.group, count)
        return count

    # --- The topic ---

    async def _topic(self, name: str, source: Source) -> TopicImage:
        groups = self._services.settings.groups
        if not name.startswith(groups.dead_letter_topic_prefix):
            raise DeadLetterError(
                f"the name of topic {name!r} does not begin with "
                f"{groups.dead_letter_topic_prefix!r} (groups.dead_letter_topic_prefix)"
            )
        if name == source.topic:
            raise DeadLetterError(f"the group reads topic {name!r} itself; choose another topic")
        topic = self._image.topic(name)
        if topic is None and groups.dead_letter_auto_create:
            topic = await self._created(name)
        if topic is None:
            raise DeadLetterError(
                f"topic {name!r} does not exist. Create it: penstock topic create {name} "
                f"--config {DEAD_LETTERS_ENABLE}=true"
            )
        if topic.settings.get(DEAD_LETTERS_ENABLE, "").strip().lower() != "true":
            raise DeadLetterError(
                f"topic {name!r} does not allow dead letters. Allow them: penstock topic "
                f"configure {name} {DEAD_LETTERS_ENABLE}=true"
            )
        return topic

    @property
    def _image(self) -> MetadataImage:
        return self._services.metadata.image

    async def _created(self, name: str) -> TopicImage | None:
        count = self._services.settings.topic_defaults.partitions_default
        asked = NewTopic(name=name, partition_count=count, settings=_CREATED_WITH)
        (outcome,) = await self._services.topics.create([asked], validate_only=False)
        if isinstance(outcome, PenstockError) and not isinstance(outcome, TopicExistsError):
            raise outcome
        return self._image.topic(name)

    # --- The records ---

    async def _copies(self, hosted: HostedPartition, letters: Sequence[Letter]) -> Copies:
        first = letters[0].first
        read = await self._services.cold_reader.read_cold(
            hosted,
            first,
            READ_BYTES_MAX,
            current_leader_epoch=-1,
            last_fetched_epoch=-1,
            at_least_one=True,
            reads_committed=False,
        )
        stored = bytes(read.records)
        wanted = {offset for offset, _ in offsets_of(letters)}
        return await self._services.heavy_work.run(
            lambda: copied_records(stored, wanted, first), len(stored), None
        )

    async def _append(self, topic: TopicImage, partition: int, batch: bytearray) -> None:
        request = ProduceRequest(
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=(
                TopicProduceData(
                    name=topic.name,
                    partition_data=(PartitionProduceData(index=partition, records=batch),),
                ),
            ),
        )
        leader = topic.partitions[partition].leader
        answer: object
        if self._peers is None or leader == self._services.node_id:
            context = RequestContext(
                self._services,
                PRODUCE_VERSION,
                CLIENT_ID,
                is_version_unsupported=False,
                api_key=ApiKey.PRODUCE,
            )
            answer = await settled(produce.handle(request, context))
        else:
            from penstock.client.transport.call import Call

            call = Call(request, ProduceResponse, _same, version_max=PRODUCE_VERSION)
            answer = await self._peers.call(leader, call, LANE)
        _check(answer, topic.name, partition)


def _same(answer: ProduceResponse) -> ProduceResponse:
    return answer


def _check(answer: object, topic: str, partition: int) -> None:
    if not isinstance(answer, ProduceResponse):
        raise DeadLetterError(f"{topic}-{partition} was not written, by a defect; see the log")
    ((row,),) = (one.partition_responses for one in answer.responses)
    if row.error_code is not ErrorCode.NONE:
        why = row.error_message or row.error_code.name
        raise DeadLetterError(f"{topic}-{partition} refuses them: {why}")


def _batch_bytes_max(topic: TopicImage, services: BrokerServices) -> int:
    own = topic.settings.get("max.message.bytes", "").strip()
    return int(own) if own.isdecimal() else services.settings.topic_defaults.message_bytes_max
