"""The arguments of a handler: `BrokerServices`, created once, and a `RequestContext` per request.

A handler reaches everything through these two, so that a reader sees its dependencies and a test
can pass fakes. Nothing in this module decides anything.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.broker.fetch_sessions import FetchSessionCache
from penstock.broker.pacing.budget import MemoryBudget
from penstock.broker.pacing.turns import TurnBudget
from penstock.broker.pacing.wide_permits import WidePermit
from penstock.broker.peer import UNKNOWN_PEER, Peer
from penstock.broker.ports import (
    BrokerAdministration,
    ColdReader,
    Coordinators,
    GroupAdministration,
    HeavyWork,
    LogDirectories,
    Metadata,
    ProducerIds,
    QuotaAdministration,
    RecordDeletion,
    Tasks,
    TopicAdministration,
)
from penstock.broker.quotas.meter import RequestMeter
from penstock.broker.quotas.quotas import Quotas
from penstock.broker.refused_batches import RefusedBatches
from penstock.broker.transaction_turns import TransactionTurns
from penstock.core.cancellation import Cancellation
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.core.limits import UNSENT_ANSWER_BYTES_MAX
from penstock.core.settings.current_settings import CurrentSettings
from penstock.core.settings.tree import Settings
from penstock.replication.manager import ReplicaManager

TOPIC_ID_VERSION: Final = 13
"""Starting at this version of Produce and of Fetch, topics are named by their id."""


class VersionRange(NamedTuple):
    """Versions of an API that are served, and the lowest one that ApiVersions names."""

    lowest: int
    highest: int
    lowest_advertised: int


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
    peer: Peer = UNKNOWN_PEER
    """The client: its address and its user."""
    meter: RequestMeter | None = None
    """Counts the costs of the request, while any quota is set."""
    client: Cancellation | None = None
    """Cancelled when the connection is gone: reads for its requests end early."""
    permit: WidePermit | None = None
    """Of a wide request; released with the answer, or earlier when it begins to wait."""
