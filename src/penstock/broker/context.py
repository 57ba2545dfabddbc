"""What a handler is given: `BrokerServices`, made once, and a `RequestContext` for each request.

A handler reaches everything through these two, so that its dependencies are one screen and a test
can give it fakes. The ports here are what the front door needs of others; `node` fills them.
Nothing in this module decides anything.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from penstock.broker.budget import MemoryBudget
from penstock.broker.fetch_sessions import FetchSessionCache
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import MetadataImage, TopicImage
from penstock.cluster.topic_configs import DescribedConfig
from penstock.core.clock import Clock
from penstock.core.deferred import Deferred
from penstock.core.errors import PenstockError
from penstock.core.limits import UNSENT_ANSWER_BYTES_MAX
from penstock.core.settings import Settings
from penstock.protocol.codec import Message
from penstock.replication.manager import HostedPartition, PartitionRead, ReplicaManager
from penstock.storage.log_types import TimestampAndOffset


class VersionRange(NamedTuple):
    """Versions of an API that are served, and the lowest one that ApiVersions names."""

    lowest: int
    highest: int
    lowest_advertised: int


class Metadata(Protocol):
    """The cluster's metadata as this broker knows it."""

    @property
    def image(self) -> MetadataImage:
        """The newest image."""
        ...


class TopicAdministration(Protocol):
    """Creates and deletes topics; when a call returns, the partitions are served or gone."""

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool
    ) -> list[TopicImage | PenstockError]:
        """One outcome for each topic, in the order asked."""
        ...

    async def delete(self, topic_ids: Sequence[UUID]) -> list[PenstockError | None]:
        """One outcome for each topic, in the order asked; None is success."""
        ...


class ProducerIds(Protocol):
    """Hands out producer ids, each once."""

    async def next_id(self) -> int:
        """An id that no other producer of this cluster has or had."""
        ...


class ColdReader(Protocol):
    """Reads what is not in the page cache, on a thread."""

    async def read_cold(
        self,
        partition: HostedPartition,
        offset: int,
        bytes_max: int,
        *,
        current_leader_epoch: int,
        last_fetched_epoch: int,
        at_least_one: bool,
    ) -> PartitionRead:
        """As `ReplicaManager.read`, but waits for the disk."""
        ...

    async def find_by_time(
        self, partition: HostedPartition, timestamp_ms: int | None
    ) -> TimestampAndOffset | None:
        """The first record at or after a time; None asks for the newest record."""
        ...


class Tasks(Protocol):
    """Starts coroutines that somebody awaits."""

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run it in the task group of the listener."""
        ...


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """Everything that handlers may use."""

    settings: Settings
    node_id: int
    clock: Clock
    metadata: Metadata
    topics: TopicAdministration
    producer_ids: ProducerIds
    replicas: ReplicaManager
    cold_reader: ColdReader
    fetch_sessions: FetchSessionCache
    tasks: Tasks
    api_ranges: Mapping[int, VersionRange]
    accepts_produce: Callable[[], PenstockError | None]
    """None when the disk has room, else the reason why produce is refused."""
    topic_defaults: Mapping[str, str]
    """What a topic gets that does not say otherwise, by Kafka's names."""
    broker_configs: Callable[[], Iterable[DescribedConfig]]
    unsent_answers: MemoryBudget = field(
        default_factory=lambda: MemoryBudget(UNSENT_ANSWER_BYTES_MAX)
    )
    """Kept by the listener: how much of the answers has not left yet."""


class RequestContext(NamedTuple):
    """One request's surroundings. Handlers seldom need the version: the codec has dealt with it."""

    services: BrokerServices
    api_version: int
    client_id: str | None
    is_version_unsupported: bool


class NoAnswer:
    """What a handler returns when the client wants no answer (acks=0)."""

    __slots__ = ("close_connection",)

    def __init__(self, *, close_connection: bool) -> None:
        self.close_connection = close_connection


class EncodedAnswer:
    """An answer that is a frame already: the hottest handler writes its bytes itself."""

    __slots__ = ("frame",)

    def __init__(self, frame: bytes) -> None:
        self.frame = frame


Answer = Message | NoAnswer | EncodedAnswer
"""What a handler gives in the end."""


class Waiter(Protocol):
    """Whoever an answer waits for; told when the client loses interest."""

    def abandon(self) -> None:
        """The client is gone: wait no longer. The answer need not be set."""
        ...

    def hurry(self) -> None:
        """The client sends no more: if what there is now is an answer, give it."""
        ...


class WaitingAnswer(Deferred["Answer"]):
    """An answer that waits for what others do, and that its client may lose interest in."""

    __slots__ = ("waiter",)

    def __init__(self, waiter: Waiter) -> None:
        super().__init__()
        self.waiter = waiter


TOPIC_ID_VERSION: Final = 13
"""From this version of Produce and of Fetch on, topics are named by their id."""

NO_ANSWER: Final = NoAnswer(close_connection=False)
CLOSE_CONNECTION: Final = NoAnswer(close_connection=True)
"""Kafka's way to tell an acks=0 producer of an error: the connection is closed."""
DEFECT: Final = NoAnswer(close_connection=True)
"""For a request that failed after it was parked, in a way that nobody expected: it is counted."""
