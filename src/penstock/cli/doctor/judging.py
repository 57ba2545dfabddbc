"""Judges the facts of `penstock doctor` and names remedies (pure).

`fine` needs no action. `note` is information, not a fault: it does not change the exit code.
`finding` is a problem, with its remedy.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.cli.doctor.facts import (
    AddressFacts,
    ClockFacts,
    ClusterFacts,
    DirectoryFacts,
    LimitFacts,
    PortFacts,
    VersionFacts,
)
from penstock.core.limits import DESCRIPTORS_RESERVED, FILES_OPEN_MAX
from penstock.core.quantities import count_text, size_text
from penstock.core.settings.tree import Settings
from penstock.core.types import PLAINTEXT

FINE: Final = "fine"
NOTE: Final = "note"
FINDING: Final = "finding"

SYNC_SLOW_MS: Final = 20.0
"""Every acknowledged write waits this long. A rotating disk without a cache needs about ten."""
SYNC_UNLIKELY_MS: Final = 0.02
"""No device is this fast: the system reported a sync that it did not perform."""
MEMORY_LOW_BYTES: Final = 268_435_456
"""A broker needs some 60 MB; its clients' requests need the rest."""
CLOCK_AHEAD_MS_MAX: Final = 2_000
EARLIEST_NOW_MS: Final = 1_735_689_600_000
"""The beginning of 2025: an earlier clock was never set."""

_NETWORK_FILESYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs", "afs", "virtiofs"}
)
_MEMORY_FILESYSTEMS: Final = frozenset({"tmpfs", "ramfs"})
_LAYER_FILESYSTEMS: Final = frozenset({"overlay", "aufs"})
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 (only compared)


@dataclass(frozen=True, slots=True)
class Judgement:
    """One line of the report."""

    check: str
    level: str
    words: str
    remedy: str = ""

    def document(self) -> dict[str, object]:
        """Return the judgement as a JSON document."""
        return {
            "check": self.check,
            "level": self.level,
            "words": self.words,
            "remedy": self.remedy or None,
        }


def judge_port(facts: PortFacts) -> Judgement:
    """Judge whether a broker can listen on the port, or which process does."""
    where = f"{facts.host}:{facts.port}"
    if facts.listener:
        where = f"{where} (listener {facts.listener})"
    with_protocol = "" if facts.protocol == PLAINTEXT else f" with {facts.protocol}"
    if facts.is_taken:
        return _judge_taken(facts, where, with_protocol)
    if facts.problem:
        return Judgement(
            "port",
            FINDING,
            f"a broker cannot listen on {where}: {facts.problem}",
            f"Set {_setting(facts, 'host')} to an address of this machine and "
            f"{_setting(facts, 'port')} to 1024 or more.",
        )
    if facts.port == 0:
        return Judgement("port", FINE, f"{where}: a broker takes a free port when it starts")
    return Judgement("port", FINE, f"{where} is free: a broker can listen there{with_protocol}")


def _judge_taken(facts: PortFacts, where: str, with_protocol: str) -> Judgement:
    if facts.serves_other_certificate:
        return Judgement(
            "port",
            FINDING,
            f"the server at {where} has another certificate than the file of the settings",
            "Restart the broker, or look for the reason in its log.",
        )
    if facts.needs_client_certificate:
        words = f"a broker{with_protocol} is at {where} and requires a client certificate"
        return Judgement("port", FINE, words)
    if facts.answers_as_broker:
        return Judgement("port", FINE, f"a broker answers at {where}{with_protocol}")
    who = f" ({facts.owner})" if facts.owner else ""
    why = f": {facts.speak_problem.removesuffix('.')}" if with_protocol else ""
    other = (
        f"set port of listener {facts.listener} to {facts.port + 1}."
        if facts.listener
        else f"take another port: `penstock serve --port {facts.port + 1}`."
    )
    return Judgement(
        "port",
        FINDING,
        f"something that is no Kafka broker{with_protocol} listens on {where}{who}, so a broker "
        f"cannot{why}",
        f"Stop it, or {other}",
    )


def _setting(facts: PortFacts, name: str) -> str:
    return f"{name} of listener {facts.listener}" if facts.listener else f"listener.{name}"


def judge_directory(facts: DirectoryFacts, settings: Settings) -> Iterator[Judgement]:
    """Judge whether the data directory is usable."""
    if settings.node.storage == "memory":
        yield Judgement("data", NOTE, "storage is memory: records are gone when the broker stops")
        return
    if facts.exists and not facts.is_directory:
        yield Judgement(
            "data",
            FINDING,
            f"{facts.path} is a file",
            "Set node.data_dir (`penstock serve --data-dir`) to a folder, or to a new path.",
        )
        return
    if not facts.is_writable or facts.problem:
        where = facts.path if facts.exists else facts.nearest
        yield Judgement(
            "data",
            FINDING,
            f"{where} cannot be written: {facts.problem or 'permission denied'}",
            "Give the folder to the user who runs the broker (chown), or set node.data_dir.",
        )
        return
    if facts.exists:
        count = count_text(facts.partitions, "partition")
        yield Judgement("data", FINE, f"{facts.path} can be written, {count} in it")
    else:
        yield Judgement("data", FINE, f"{facts.path} does not exist; the broker creates it")
    yield _judge_space(facts, settings)
    yield _judge_filesystem(facts)
    if facts.sync_ms is not None:
        yield _judge_sync(facts.sync_ms, settings.flush.mode)


def _judge_space(facts: DirectoryFacts, settings: Settings) -> Judgement:
    least = max(
        settings.disk.free_bytes_min,
        round(settings.disk.free_percent_min / 100 * facts.total_bytes),
    )
    free = f"{size_text(facts.free_bytes)} of {size_text(facts.total_bytes)} are free"
    remedy = (
        "Make room, put the data on a larger disk, or let topics keep less (retention.ms, "
        "retention.bytes)."
    )
    if facts.free_bytes < least:
        words = f"{free}: produce is refused below {size_text(least)}"
        return Judgement("space", FINDING, words, remedy)
    if facts.free_bytes < 2 * least:
        words = f"{free}, close to the {size_text(least)} below which produce is refused"
        return Judgement("space", FINDING, words, remedy)
    return Judgement("space", FINE, free)


def _judge_filesystem(facts: DirectoryFacts) -> Judgement:
    kind = facts.filesystem
    if kind in _MEMORY_FILESYSTEMS:
        return Judgement(
            "filesystem",
            FINDING,
            f"the data is on {kind}, which is memory: a restart of the machine forgets everything",
            "Set node.data_dir to a folder on a disk.",
        )
    if kind in _NETWORK_FILESYSTEMS:
        return Judgement(
            "filesystem",
            FINDING,
            f"the data is on {kind}, a network: a sync may lie, and a lock may not hold",
            "Set node.data_dir to a folder on a disk of this machine, or a block volume.",
        )
    if kind in _LAYER_FILESYSTEMS:
        return Judgement(
            "filesystem",
            FINDING,
            f"the data is on {kind}, a container's own layer: it goes with the container",
            "Mount a volume and set node.data_dir to it.",
        )
    return Judgement(
        "filesystem", FINE, f"the data is on {kind or 'a file system of no known type'}"
    )


def _judge_sync(sync_ms: float, flush_mode: str) -> Judgement:
    words = f"a small write is on disk after {sync_ms:.2f} ms"
    if sync_ms > SYNC_SLOW_MS and flush_mode != "always":
        return Judgement(
            "sync", NOTE, f"{words}; with flush.mode={flush_mode} no acknowledgement waits for it"
        )
    if sync_ms > SYNC_SLOW_MS:
        return Judgement(
            "sync",
            FINDING,
            f"{words}, and with flush.mode=always every acknowledgement waits that long",
            "Use a disk with a write cache that survives power loss, larger batches, or "
            "flush.mode=interval if losing its last moments is allowed.",
        )
    if sync_ms < SYNC_UNLIKELY_MS:
        return Judgement(
            "sync",
            NOTE,
            f"{words}: no disk is that fast, so a power cut may lose what was acknowledged",
        )
    return Judgement("sync", FINE, words)


def judge_limits(facts: LimitFacts, settings: Settings) -> Iterator[Judgement]:
    """Judge whether the system's limits suffice for the settings."""
    wanted = DESCRIPTORS_RESERVED + FILES_OPEN_MAX + settings.listener.connections_max
    if facts.files_hard < wanted:
        yield Judgement(
            "files",
            FINDING,
            f"at most {facts.files_hard:,} files may be open, and {wanted:,} are wanted for "
            f"{settings.listener.connections_max:,} connections and the log",
            f"Raise it with `ulimit -Hn {wanted}` or LimitNOFILE of the service, or lower "
            "listener.connections_max. Until then the broker takes fewer connections.",
        )
    else:
        raised = " (raised at the start)" if facts.files_soft < wanted else ""
        yield Judgement("files", FINE, f"{wanted:,} files may be open{raised}, as many as wanted")
    available = facts.memory_available_bytes
    if facts.memory_limit_bytes:
        available = min(available or facts.memory_limit_bytes, facts.memory_limit_bytes)
    if not available:
        yield Judgement("memory", NOTE, "the system does not report its memory")
        return
    wanted_bytes = max(MEMORY_LOW_BYTES, settings.listener.request_bytes_in_flight_max)
    if available < wanted_bytes:
        yield Judgement(
            "memory",
            FINDING,
            f"{size_text(available)} of memory is available, and requests in flight alone may use "
            f"{size_text(settings.listener.request_bytes_in_flight_max)}",
            "Give the machine or the container more, or lower "
            "listener.request_bytes_in_flight_max.",
        )
    else:
        yield Judgement("memory", FINE, f"{size_text(available)} of memory is available")


def judge_clock(facts: ClockFacts) -> Iterator[Judgement]:
    """Judge whether the clocks are right."""
    if facts.now_ms < EARLIEST_NOW_MS:
        yield Judgement(
            "clock",
            FINDING,
            "the clock shows a year before 2025: retention by time would delete or keep the wrong "
            "records",
            "Set it, and synchronize it (`timedatectl set-ntp true`).",
        )
    elif not facts.is_monotonic:
        yield Judgement(
            "clock",
            FINDING,
            "the clock for durations went back: timeouts cannot be trusted on this machine",
            "Report it to the machine's administrator; a VM may need another clock source.",
        )
    elif facts.is_synchronized is False:
        yield Judgement(
            "clock",
            NOTE,
            "the clock is not synchronized (no NTP); this is fine only if the host of a virtual "
            "machine synchronizes it",
        )
    else:
        how = "" if facts.is_synchronized is None else " and synchronized"
        yield Judgement("clock", FINE, f"the clock is plausible{how}")
    if facts.broker_newest_ms is not None:
        yield _judge_drift(facts.broker_newest_ms - facts.now_ms)


def _judge_drift(ahead_ms: int) -> Judgement:
    if ahead_ms > CLOCK_AHEAD_MS_MAX:
        return Judgement(
            "drift",
            FINDING,
            f"the broker wrote a record {ahead_ms / 1000:.1f} s in the future of this machine",
            "One of the two clocks is wrong: synchronize both (NTP).",
        )
    return Judgement("drift", FINE, "no time of the broker's own records is in the future here")


def judge_versions(facts: VersionFacts) -> Iterator[Judgement]:
    """Judge the installed versions and extras."""
    yield Judgement("version", FINE, f"penstock {facts.penstock} on Python {facts.python}")
    if facts.is_compiled:
        yield Judgement("compiled", FINE, "the hot path is compiled")
    else:
        yield Judgement(
            "compiled",
            NOTE,
            "the hot path is not compiled: a small request costs twice as much. `pip install` "
            "with an installed C compiler compiles it",
        )
    if facts.extras:
        there = sorted(name for name, is_there in facts.extras.items() if is_there)
        absent = sorted(name for name, is_there in facts.extras.items() if not is_there)
        words = f"extras: {', '.join(there) or 'none'}"
        if absent:
            words += f"; not installed: {', '.join(absent)}"
        yield Judgement("extras", FINE if not absent else NOTE, words)


def judge_cluster(facts: ClusterFacts) -> Iterator[Judgement]:
    """Judge a client's path: first the bootstrap addresses, then the advertised addresses."""
    for one in facts.bootstrap:
        yield _judge_address("bootstrap", one, one.address)
    if not any(one.speaks_kafka for one in facts.bootstrap):
        return
    if facts.problem:
        yield Judgement(
            "metadata",
            FINDING,
            f"the cluster did not report its brokers: {facts.problem.removesuffix('.')}",
            "Check the broker's log.",
        )
        return
    count = count_text(len(facts.advertised), "broker")
    yield Judgement("metadata", FINE, f"cluster {facts.cluster_id or '-'} has {count}")
    is_remote = not any(one.is_loopback for one in facts.bootstrap if one.speaks_kafka)
    for broker in facts.advertised:
        yield _judge_advertised(
            broker.broker_id, broker.seen, facts.cluster_id, is_remote=is_remote
        )


def _judge_address(check: str, seen: AddressFacts, name: str) -> Judgement:
    if seen.resolve_problem:
        return Judgement(
            check,
            FINDING,
            f"{name} does not resolve: {seen.resolve_problem}",
            "Check the spelling, DNS and /etc/hosts.",
        )
    if seen.connect_problem:
        return Judgement(
            check,
            FINDING,
            f"{name} is unreachable: {seen.connect_problem}",
            "Start the broker (`penstock serve`), or check port, firewall and listener.host.",
        )
    problem = seen.speak_problem.removesuffix(".")
    if seen.is_refused:
        return Judgement(
            check,
            FINDING,
            f"{name} is a broker that this client cannot use: {problem}",
            _speak_remedy(seen) or "Correct the settings of the client (--command-config).",
        )
    if not seen.speaks_kafka:
        return Judgement(
            check,
            FINDING,
            f"{name} accepts connections, but does not answer as a broker: {problem}",
            _speak_remedy(seen)
            or "It is another service, or a listener with TLS or SASL: give --command-config.",
        )
    return Judgement(check, FINE, f"{name} answers as a broker, in {seen.answer_ms:.1f} ms")


def _speak_remedy(seen: AddressFacts) -> str:
    """Return the client's remedy, with the option for settings of TLS and SASL."""
    is_setting = any(name in seen.speak_remedy for name in ("security.protocol", "ssl.", "sasl."))
    plain = seen.speak_remedy.removesuffix(".")
    return f"{plain} (--command-config)." if is_setting else seen.speak_remedy


def _judge_advertised(
    broker_id: int, seen: AddressFacts, cluster_id: str, *, is_remote: bool
) -> Judgement:
    name = f"broker {broker_id} at {seen.address}"
    remedy = (
        "Set advertised_host and advertised_port of the listener (Apache Kafka: "
        "advertised.listeners) to an address that clients can reach."
    )
    if any(one in _WILDCARDS for one in seen.resolved):
        words = f"the broker advertises {seen.address}, which is not the address of a host"
        return Judgement("advertised", FINDING, words, remedy)
    if seen.is_loopback and is_remote:
        words = (
            f"the broker advertises {seen.address}, which on every machine is the machine itself: "
            "only clients on the broker's machine can connect"
        )
        return Judgement("advertised", FINDING, words, remedy)
    if seen.resolve_problem or seen.connect_problem or not seen.speaks_kafka:
        problem = _judge_address("advertised", seen, seen.address).words
        return Judgement(
            "advertised", FINDING, f"the cluster advertises {name}, but {problem}", remedy
        )
    if seen.cluster_id is not None and seen.cluster_id != cluster_id:
        words = f"{name} is of another cluster ({seen.cluster_id}): clients would mix up two"
        return Judgement("advertised", FINDING, words, remedy)
    return Judgement("advertised", FINE, f"{name} answers, in {seen.answer_ms:.1f} ms")
