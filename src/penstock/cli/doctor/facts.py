"""What `penstock doctor` found out, as plain values (pure): probes fill them, judges read them."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PortFacts:
    """The port that a broker would listen on."""

    host: str
    port: int
    problem: str = ""
    """Why it cannot be listened on, in the system's words; empty when it can."""
    is_taken: bool = False
    answers_as_broker: bool = False
    owner: str = ""
    """The process that listens there, where the system tells."""


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """The data directory."""

    path: str
    exists: bool
    is_directory: bool = True
    nearest: str = ""
    """The nearest folder above that exists, when it does not itself."""
    is_writable: bool = True
    free_bytes: int = 0
    total_bytes: int = 0
    filesystem: str = ""
    """ext4, xfs, tmpfs ...; empty where the system does not tell."""
    sync_ms: float | None = None
    """The median time to write a little and have it on disk; None when it was not tried."""
    problem: str = ""
    """What failed when it was tried to write."""
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """What the system lets this process have."""

    files_soft: int
    files_hard: int
    memory_available_bytes: int
    """What a process could get without swapping; 0 where the system does not tell."""
    memory_limit_bytes: int = 0
    """Of the container; 0 without one."""


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """The clocks of this machine, and what a broker's records say of its own."""

    now_ms: int
    is_monotonic: bool
    is_synchronized: bool | None
    """Whether a time service keeps it right; None where the system does not tell."""
    broker_newest_ms: int | None = None
    """The newest time that a broker wrote into its own records; None when there is none."""


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """What is installed."""

    penstock: str
    python: str
    is_compiled: bool
    extras: dict[str, bool] = field(default_factory=dict)
    """Name of an extra to whether its packages are there."""


@dataclass(frozen=True, slots=True)
class AddressFacts:
    """One address, as a client sees it."""

    address: str
    resolved: tuple[str, ...] = ()
    resolve_problem: str = ""
    connect_problem: str = ""
    speaks_kafka: bool = False
    speak_problem: str = ""
    answer_ms: float = 0.0
    """How long one question and its answer took."""
    cluster_id: str | None = None
    """What the broker at this address calls its cluster; None when it was not asked."""

    @property
    def is_loopback(self) -> bool:
        """Whether it leads back to the machine that asks."""
        return bool(self.resolved) and all(
            one == "::1" or one.startswith("127.") for one in self.resolved
        )


@dataclass(frozen=True, slots=True)
class AdvertisedFacts:
    """An address that a broker tells clients to use."""

    broker_id: int
    seen: AddressFacts


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster as a client comes to know it."""

    bootstrap: tuple[AddressFacts, ...]
    cluster_id: str = ""
    advertised: tuple[AdvertisedFacts, ...] = ()
    problem: str = ""
    """Why the cluster did not tell its brokers."""
