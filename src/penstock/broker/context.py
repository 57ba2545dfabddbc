"""The arguments of a handler: `BrokerServices`, created once, and a `RequestContext` per request.

A handler reaches everything through these two, so that a reader sees its dependencies and a test
can pass fakes. The ports describe other packages as `broker` uses them; `node` implements them.
Nothing in this module decides anything.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from penstock.broker.fetch_sessions import FetchSessionCache
from penstock.broker.pacing.budget import MemoryBudget
from penstock.broker.pacing.turns import TurnBudget
from penstock.broker.pacing.wide_permits import WidePermit
from penstock.broker.quotas.meter import RequestMeter
from penstock.broker.quotas.quotas import Quotas
from penstock.broker.refused_batches import RefusedBatches
from penstock.broker.transaction_turns import TransactionTurns
from penstock.cluster.configs.described_configs import BrokerLayers, DescribedConfig
from penstock.cluster.configs.setting_changes import SettingsChange
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import MetadataImage, TopicImage
from penstock.cluster.quota_changes import QuotaChange
from penstock.cluster.topic_changes import MorePartitions
from penstock.coordinator.kinds import CoordinatorKind
from penstock.core.cancellation import Cancellation
from penstock.core.clock import Clock
from penstock.core.deferred import Deferred
from penstock.core.errors import PeerError, PenstockError
from penstock.core.limits import UNSENT_ANSWER_BYTES_MAX
from penstock.core.settings.current_settings import CurrentSettings
from penstock.core.settings.tree import Settings
from penstock.core.types import TopicPartition
from penstock.protocol.codec import Message
from penstock.replication.manager import HostedPartition, ReplicaManager
from penstock.replication.read_result import PartitionRead
from penstock.storage.log.log_types import TimestampAndOffset

Result = TypeVar("Result")


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
    """Creates, changes, deletes topics; when a call returns, the partitions are served or gone."""

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool
    ) -> list[TopicImage | PenstockError]:
        """One outcome for each topic, in the order asked."""
        ...

    async def delete(self, topic_ids: Sequence[UUID]) -> list[PenstockError | None]:
        """One outcome for each topic, in the order asked; None is success."""
        ...

    async def add_partitions(
        self, wanted: Sequence[MorePartitions], *, validate_only: bool
    ) -> list[PenstockError | None]:
        """One outcome for each topic, in the order asked; None is success."""
        ...

    async def change_settings(
        self, changes: Sequence[SettingsChange], *, validate_only: bool
    ) -> list[PenstockError | None]:
        """One outcome for each topic; when the call returns, its logs follow the new settings."""
        ...


class GroupAdministration(Protocol):
    """The settings of single groups. A group need not exist to have some."""

    def describe_settings(self, name: str) -> Iterable[DescribedConfig]:
        """Every setting of a group, with where its value comes from."""
        ...

    async def change_settings(
        self, changes: Sequence[SettingsChange], *, validate_only: bool
    ) -> list[PenstockError | None]:
        """One outcome for each group; when the call returns, its next heartbeat follows them."""
        ...


class BrokerAdministration(Protocol):
    """The settings of this broker."""

    @property
    def layers(self) -> BrokerLayers:
        """The settings given to this broker, by Kafka's names, as of now."""
        ...

    async def change_settings(
        self, changes: Sequence[SettingsChange], *, validate_only: bool
    ) -> list[PenstockError | None]:
        """One outcome for each; when the call returns, the topics follow."""
        ...


class QuotaAdministration(Protocol):
    """The quotas of users, client ids and addresses. None of them need exist to have some."""

    async def change(
        self, changes: Sequence[QuotaChange], *, validate_only: bool
    ) -> list[PenstockError | None]:
        """One outcome for each entity; when the call returns, its quotas are in force."""
        ...


class LogDirectoryState(NamedTuple):
    """One data directory as it is now."""

    path: str
    problem: PenstockError | None
    """Why it is not used, if it is not."""
    free_bytes: int
    total_bytes: int


class LogDirectories(Protocol):
    """The data directories and the room in them."""

    async def describe(self) -> list[LogDirectoryState]:
        """Each directory; asks the disk."""
        ...


class ProducerIds(Protocol):
    """Hands out producer ids, each once."""

    async def next_id(self) -> int:
        """An id that no other producer of this cluster has or had."""
        ...


class Coordinators(Protocol):
    """Groups and transactions. Each key has one shard, behind a partition of an internal topic.

    A refusal is a value, not an exception: `CoordinatorLoadingError`, `NotCoordinatorError`,
    `CoordinatorNotAvailableError`, or an error of the log. The handler turns it into its API's
    answer.
    """

    def submit(
        self, kind: CoordinatorKind, key: str, request: Message, context: "RequestContext"
    ) -> Deferred[Message | PenstockError]:
        """Ask the shard of a key without a task; for hot handlers."""
        ...

    async def ask(
        self, kind: CoordinatorKind, key: str, request: Message, context: "RequestContext"
    ) -> Message | PenstockError:
        """Ask the shard of a key."""
        ...

    async def ask_partition(
        self, kind: CoordinatorKind, partition: int, request: Message, context: "RequestContext"
    ) -> Message | PenstockError:
        """Ask the shard of a partition, for requests that name no key or several."""
        ...

    def partition_of(self, kind: CoordinatorKind, key: str) -> int:
        """The partition of the internal topic that a key belongs to."""
        ...

    def partition_count(self, kind: CoordinatorKind) -> int:
        """Partitions of the internal topic; 0 while it does not exist."""
        ...

    async def ensure_topic(self, kind: CoordinatorKind) -> PenstockError | None:
        """Create the internal topic if it does not exist; the error when that failed."""
        ...

    def marker_written(
        self, name: TopicPartition, producer_id: int, producer_epoch: int, *, commits: bool
    ) -> None:
        """The end of a transaction was appended to a partition, just now."""
        ...


class ColdReader(Protocol):
    """Reads records that are not in the page cache, on a thread."""

    async def read_cold(
        self,
        partition: HostedPartition,
        offset: int,
        bytes_max: int,
        *,
        current_leader_epoch: int,
        last_fetched_epoch: int,
        at_least_one: bool,
        reads_committed: bool,
        client: Cancellation | None = None,
    ) -> PartitionRead:
        """As `ReplicaManager.read`, but waits for the disk."""
        ...

    async def find_by_time(
        self,
        partition: HostedPartition,
        timestamp_ms: int | None,
        client: Cancellation | None = None,
    ) -> TimestampAndOffset | None:
        """The first record at or after a time; None asks for the newest record."""
        ...

    async def load(self, load: Callable[[], None], client: Cancellation) -> None:
        """Run `load`, which reads a file into the page cache."""
        ...


class HeavyWork(Protocol):
    """Worker threads for work whose price a client chooses."""

    async def run(
        self, call: Callable[[], Result], size_bytes: int, client: Cancellation | None
    ) -> Result:
        """Return the result of `call`, run on a thread. `size_bytes` is held while it waits.

        With 0 bytes, the caller bounds how much waits, and only the number of jobs is bounded here.
        Raises `StorageBusyError` when too much waits already, `WorkCancelledError` when the client
        is gone, and every exception of `call`.
        """
        ...


class RecordDeletion(Protocol):
    """Advances the start offsets of logs, permanently."""

    async def advance_starts(
        self, starts: Sequence[tuple[HostedPartition, int]]
    ) -> list[PenstockError | None]:
        """Hide the records below each offset, durably; one outcome for each, None is success."""
        ...


class Tasks(Protocol):
    """Starts coroutines in a task group that is awaited."""

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run the coroutine in the task group of the listener."""
        ...


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """Everything that handlers may use."""

    current: CurrentSettings
    node_id: int
    clock: Clock
    metadata: Metadata
    topics: TopicAdministration
    groups: GroupAdministration
    brokers: BrokerAdministration
    quota_administration: QuotaAdministration
    producer_ids: ProducerIds
    replicas: ReplicaManager
    cold_reader: ColdReader
    heavy_work: HeavyWork
    record_deletion: RecordDeletion
    log_directories: LogDirectories
    coordinators: Coordinators
    fetch_sessions: FetchSessionCache
    tasks: Tasks
    turns: TurnBudget
    api_ranges: Mapping[int, VersionRange]
    accepts_produce: Callable[[], PenstockError | None]
    """None when the disk has room, else the reason why produce is refused."""
    unsent_answers: MemoryBudget = field(
        default_factory=lambda: MemoryBudget(UNSENT_ANSWER_BYTES_MAX)
    )
    """Kept by the listener: how much of the answers has not left yet."""
    transaction_turns: TransactionTurns = field(default_factory=TransactionTurns)
    quotas: Quotas = field(default_factory=Quotas)
    refused_batches: RefusedBatches = field(default_factory=RefusedBatches)

    @property
    def settings(self) -> Settings:
        """The settings in force; a reload may replace them."""
        return self.current.settings


class RequestContext(NamedTuple):
    """One request's surroundings. Handlers seldom need the version: the codec has dealt with it."""

    services: BrokerServices
    api_version: int
    client_id: str | None
    is_version_unsupported: bool
    client_host: str = ""
    """The address that the client connects from."""
    meter: RequestMeter | None = None
    """Counts the costs of the request, while any quota is set."""
    client: Cancellation | None = None
    """Cancelled when the connection is gone: reads for its requests end early."""
    permit: WidePermit | None = None
    """Of a wide request; released with the answer, or earlier when it begins to wait."""


class NoAnswer:
    """The result of a handler when the client wants no answer (acks=0)."""

    __slots__ = ("close_connection",)

    def __init__(self, *, close_connection: bool) -> None:
        self.close_connection = close_connection


class BrokenRequest(NoAnswer):
    """A request whose bytes were found invalid on a worker thread: the peer was wrong."""

    __slots__ = ("error",)

    def __init__(self, error: PeerError) -> None:
        super().__init__(close_connection=True)
        self.error = error


class EncodedAnswer:
    """An answer that is already encoded as a frame: the hottest handler writes its bytes itself."""

    __slots__ = ("frame",)

    def __init__(self, frame: bytes) -> None:
        self.frame = frame


Answer = Message | NoAnswer | EncodedAnswer
"""The final result of a handler."""


class Waiter(Protocol):
    """The work that an answer waits for; notified when the client disconnects or sends no more."""

    def abandon(self) -> None:
        """The client has disconnected: stop waiting. The answer need not be set."""
        ...

    def hurry(self) -> None:
        """The client sends no more: if there is enough for an answer now, set it."""
        ...


class WaitingAnswer(Deferred["Answer"]):
    """An answer that waits for other requests or the disk, and that its client may abandon."""

    __slots__ = ("waiter",)

    def __init__(self, waiter: Waiter) -> None:
        super().__init__()
        self.waiter = waiter


class HoldingAnswer(WaitingAnswer):
    """An answer to a request that is still being handled: later ones of its connection wait."""

    __slots__ = ("is_holding", "on_release")

    def __init__(self, waiter: Waiter) -> None:
        super().__init__(waiter)
        self.is_holding = True
        self.on_release: Callable[[], None] | None = None

    def release(self) -> None:
        """The request has had its effect; its answer may still wait for others."""
        self.is_holding = False
        on_release, self.on_release = self.on_release, None
        if on_release is not None:
            on_release()


TOPIC_ID_VERSION: Final = 13
"""Starting at this version of Produce and of Fetch, topics are named by their id."""

NO_ANSWER: Final = NoAnswer(close_connection=False)
CLOSE_CONNECTION: Final = NoAnswer(close_connection=True)
"""Kafka's way to report an error to an acks=0 producer: the connection is closed."""
DEFECT: Final = NoAnswer(close_connection=True)
"""For a request that failed unexpectedly after it was parked: it is counted as a defect."""
