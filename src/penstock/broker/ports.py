"""The ports of the broker: other packages as handlers use them. `node` implements them.

A port has the methods that a handler calls and no more, so that a test can pass a fake. Nothing in
this module decides anything.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar
from uuid import UUID

from penstock.broker.peer import Peer
from penstock.cluster.configs.described_configs import BrokerLayers, DescribedConfig
from penstock.cluster.configs.setting_changes import SettingsChange
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import MetadataImage, TopicImage
from penstock.cluster.link.election_outcomes import ElectionOutcome
from penstock.cluster.moves.requested_moves import MoveOutcome, ReplicaMove
from penstock.cluster.quota_changes import QuotaChange
from penstock.cluster.scram_changes import ScramChange
from penstock.cluster.topic_changes import MorePartitions
from penstock.coordinator.kinds import CoordinatorKind
from penstock.core.cancellation import Cancellation
from penstock.core.deferred import Deferred
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.codec import Message
from penstock.replication.admission import Fetcher
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.read_result import PartitionRead
from penstock.security.acls.filters import AclFilter
from penstock.security.acls.values import AclBinding, Operation, ResourceType
from penstock.storage.log.log_types import TimestampAndOffset

if TYPE_CHECKING:
    from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTransaction

Result = TypeVar("Result")


class Metadata(Protocol):
    """The cluster's metadata as this broker knows it."""

    @property
    def image(self) -> MetadataImage:
        """The newest image."""
        ...


class Elections(Protocol):
    """Elections of leaders that clients request."""

    async def elect(
        self, places: Sequence[tuple[str, int]], *, is_unclean: bool
    ) -> Mapping[tuple[str, int], ElectionOutcome]:
        """Elect leaders of these partitions, by topic name and number; return the outcomes."""
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

    async def move_replicas(
        self, moves: Sequence[ReplicaMove], *, may_change_factor: bool
    ) -> list[MoveOutcome]:
        """One outcome for each partition; the moves have begun, and the logs are copied later."""
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

    async def forget(self, broker_id: int) -> None:
        """Forget a broker that has stopped; raises a domain error if the request is rejected."""
        ...

    async def raise_levels(self, levels: Mapping[str, int], *, validate_only: bool) -> None:
        """Raise levels of the cluster's features; `LevelRefusedError` if one cannot be used."""
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


class Guarded(Protocol):
    """Services that may have an authorizer; `BrokerServices` are."""

    @property
    def access(self) -> object | None:
        """None: there is no authorizer, and each client may do everything."""
        ...


class Asker(Protocol):
    """The fields of a request that a coordinator uses; `RequestContext` has them."""

    @property
    def services(self) -> Guarded:
        """The services of the request's handler."""
        ...

    @property
    def api_version(self) -> int:
        """The version of the client's request."""
        ...

    @property
    def client_id(self) -> str | None:
        """The client id of the request's header."""
        ...

    @property
    def peer(self) -> Peer:
        """The client at the other end of the connection."""
        ...

    def allows(
        self,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Whether the client may; pass `is_logged=False` for a check that only hides something."""
        ...


class Coordinators(Protocol):
    """Groups and transactions. Each key has one shard, behind a partition of an internal topic.

    A refusal is a value, not an exception: `CoordinatorLoadingError`, `NotCoordinatorError`,
    `CoordinatorNotAvailableError`, or an error of the log. The handler turns it into its API's
    answer.
    """

    def submit(
        self, kind: CoordinatorKind, key: str, request: Message, asker: Asker
    ) -> Deferred[Message | PenstockError]:
        """Ask the shard of a key without a task; for hot handlers."""
        ...

    async def ask(
        self, kind: CoordinatorKind, key: str, request: Message, asker: Asker
    ) -> Message | PenstockError:
        """Ask the shard of a key."""
        ...

    async def verify(
        self, transaction: "AddPartitionsToTxnTransaction", asker: Asker
    ) -> Message | PenstockError:
        """Ask the coordinator of a transaction as a broker, on whatever broker it is.

        The answer is an `AddPartitionsToTxnResponse`.
        """
        ...

    async def ask_partition(
        self, kind: CoordinatorKind, partition: int, request: Message, asker: Asker
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
        fetcher: Fetcher | None = None,
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


class AclDeletion(NamedTuple):
    """One rule that a filter matches."""

    acl: AclBinding
    problem: PenstockError | None
    """Why it is still in force; None if it is deleted."""


class AclAdministration(Protocol):
    """The access rules: those of the store, and those of a rules file, which are fixed here."""

    def rules(self) -> Sequence[AclBinding]:
        """The rules in force, each once, in no order."""
        ...

    async def create(self, wanted: Sequence[AclBinding]) -> list[PenstockError | None]:
        """One outcome for each rule; when the call returns, it is in force."""
        ...

    async def delete(
        self, filters: Sequence[AclFilter]
    ) -> list[tuple[AclDeletion, ...] | PenstockError]:
        """The rules of each filter, or its error; rules of the store are deleted all or none."""
        ...


class UserAdministration(Protocol):
    """The SCRAM credentials of users."""

    async def change(self, changes: Sequence[ScramChange]) -> Mapping[str, PenstockError | None]:
        """One outcome for each user; when the call returns, the next login follows it."""
        ...
