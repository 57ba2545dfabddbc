"""The facts of `penstock doctor`, as plain values (pure): probes fill them, judges read them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.types import PLAINTEXT
from penstock.security.acls.values import AclBinding, ResourceType


@dataclass(frozen=True, slots=True)
class PortFacts:
    """The port that one listener of a broker would use."""

    host: str
    port: int
    problem: str = ""
    """The system's error if listening fails; empty if it succeeds."""
    is_taken: bool = False
    answers_as_broker: bool = False
    owner: str = ""
    """The process that listens on the port, if the system reports it."""
    listener: str = ""
    """The name of a declared listener; empty for the address of `[listener]`."""
    protocol: str = PLAINTEXT
    speak_problem: str = ""
    """Why the process on the port does not answer as a broker."""
    needs_client_certificate: bool = False
    """A TLS server that ended the connection because no client certificate was sent."""
    serves_other_certificate: bool = False
    """The certificate of the running broker is not the one in the file of the settings."""


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
    is_refused: bool = False
    """The TLS handshake or the login failed: one side refused the other one."""
    speak_remedy: str = ""
    """The remedy for `speak_problem`, if the client knows it."""
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


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One certificate of a file."""

    subject: str
    issuer: str
    first_valid_ms: int
    last_valid_ms: int
    is_self_signed: bool = False
    is_signed_by_next: bool = True
    """Whether the next certificate of the file signed it; for the last one, True."""


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """The files of one TLS listener, or of the admin port."""

    listener: str
    """The name of the listener; empty for the admin port."""
    certificate_file: str
    key_file: str
    host: str = ""
    """The name that clients connect to; empty: unknown."""
    problem: str = ""
    """Why the certificate cannot be read."""
    key_problem: str = ""
    """Why the key cannot be read."""
    refusal: str = ""
    """Why a broker would not start with these files; empty if it would."""
    refusal_remedy: str = ""
    key_mode: int = 0o600
    """The permissions of the key file, of its target if it is a link."""
    is_key_of_root: bool = False
    """Whether the key file belongs to root."""
    is_examined: bool = True
    """False: the package cryptography is missing, and the facts below are unknown."""
    links: tuple[ChainLink, ...] = ()
    """The certificates of the file, in its order: the broker's own is the first."""
    dns_names: tuple[str, ...] = ()
    """DNS names among the alternative names (SAN) of the broker's certificate."""
    addresses: tuple[str, ...] = ()
    """IP addresses among these names."""
    key_kind: str = ""
    """The public key of the certificate, such as `ECDSA secp256r1`."""
    is_rsa: bool = False
    is_key_fit: bool = True
    """Whether the key belongs to the certificate."""
    is_for_servers: bool = True
    """False: its extended key usage has no serverAuth."""
    is_issuer_known: bool = True
    """Whether the issuer of the last certificate is known here: the last one signs itself, or its
    authority is one of the system, of `client_ca` or of the client's settings."""
    client_ca_file: str = ""
    client_ca_problem: str = ""
    """Why the authorities of clients cannot be read; empty if they can, or if none are wanted."""
    client_ca_last_valid_ms: int | None = None
    """The time at which the last of these authorities expires; None: unknown."""


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """A file or a service that the settings name: access rules, users, keys, a directory."""

    check: str
    name: str
    """The setting and its value."""
    content: str = ""
    """The number of things in it."""
    problem: str = ""
    """Why it cannot be used; empty if it can."""
    remedy: str = ""
    is_unchecked: bool = False
    """A package for the check is missing: the problem names it."""


@dataclass(frozen=True, slots=True)
class AccessFacts:
    """The access rules and the users of a cluster, as far as the caller may see them."""

    bootstrap: str
    """The addresses of the cluster, as a command accepts them."""
    rules: tuple[AclBinding, ...] | None = None
    """None: unknown, for the reason in `problem`."""
    problem: str = ""
    has_authorizer: bool = True
    existing: Mapping[ResourceType, tuple[str, ...]] = field(default_factory=dict)
    """Existing names by type; a type is missing if the caller may not see all names."""
    users: frozenset[str] | None = None
    """Users with a SCRAM credential; None: unknown."""
