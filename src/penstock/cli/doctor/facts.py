"""The facts of `penstock doctor`, as plain values (pure): probes fill them, judges read them."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PortFacts:
    """The port that a broker would listen on."""

    host: str
    port: int
    problem: str = ""
    """The system's error if listening fails; empty if it succeeds."""
    is_taken: bool = False
    answers_as_broker: bool = False
    owner: str = ""
    """The process that listens on the port, if the system reports it."""


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """The data directory."""

    path: str
    exists: bool
    is_directory: bool = True
    nearest: str = ""
    """The nearest existing parent folder, if the directory does not exist."""
    is_writable: bool = True
    free_bytes: int = 0
    total_bytes: int = 0
    filesystem: str = ""
    """ext4, xfs, tmpfs ...; empty if the system does not report it."""
    sync_ms: float | None = None
    """The median time of a small write and its sync; None if it was not measured."""
    problem: str = ""
    """The error of the test write."""
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """The limits that the system sets for this process."""

    files_soft: int
    files_hard: int
    memory_available_bytes: int
    """The memory available without swapping; 0 if the system does not report it."""
    memory_limit_bytes: int = 0
    """The memory limit of the container; 0 without a container."""


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """The clocks of this machine, and the newest time in a broker's records."""

    now_ms: int
    is_monotonic: bool
    is_synchronized: bool | None
    """Whether a time service synchronizes the clock; None if the system does not report it."""
    broker_newest_ms: int | None = None
    """The newest time that a broker wrote into its own records; None without such records."""


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """The installed versions and extras."""

    penstock: str
    python: str
    is_compiled: bool
    extras: dict[str, bool] = field(default_factory=dict)
    """Name of an extra to whether its packages are installed."""


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
    """The time of one request and its response."""
    cluster_id: str | None = None
    """The cluster id that the broker at this address reports; None if it was not queried."""

    @property
    def is_loopback(self) -> bool:
        """Return whether the address is a loopback address of the client's machine."""
        return bool(self.resolved) and all(
            one == "::1" or one.startswith("127.") for one in self.resolved
        )


@dataclass(frozen=True, slots=True)
class AdvertisedFacts:
    """An address that a broker advertises to clients."""

    broker_id: int
    seen: AddressFacts


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster as a client sees it."""

    bootstrap: tuple[AddressFacts, ...]
    cluster_id: str = ""
    advertised: tuple[AdvertisedFacts, ...] = ()
    problem: str = ""
    """Why the cluster did not return its brokers."""
