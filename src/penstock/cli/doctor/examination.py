"""Runs the checks of `penstock doctor` in their order: probes collect facts, judges judge them.

Without an address it examines this machine with the settings of `penstock serve`, each listener on
its own. Clients of a listener are examined too if their credentials are known: the settings of the
client have the protocol of the listener, or the listener has neither TLS nor a login. Of the other
listeners only the answer is examined.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.cli.doctor.access_judging import (
    judge_access,
    judge_client_protocol,
    judge_exposure,
    judge_rules,
    judge_source,
    judge_super_users,
)
from penstock.cli.doctor.access_probe import probe_access
from penstock.cli.doctor.certificate_judging import judge_certificates
from penstock.cli.doctor.certificate_probe import probe_certificates
from penstock.cli.doctor.facts import AccessFacts, ClusterFacts, PortFacts
from penstock.cli.doctor.host import (
    probe_clock,
    probe_directory,
    probe_limits,
    probe_versions,
)
from penstock.cli.doctor.judging import (
    Judgement,
    judge_clock,
    judge_cluster,
    judge_directory,
    judge_limits,
    judge_port,
    judge_versions,
)
from penstock.cli.doctor.listener_probe import advertised_address, local_address, probe_listener
from penstock.cli.doctor.network import newest_time_of_broker, probe_cluster
from penstock.cli.doctor.source_probe import file_rules, probe_sources
from penstock.client.security.options import NO_SECURITY, Security
from penstock.client.transport.addresses import Address
from penstock.core.clock import SystemClock
from penstock.core.settings.listener_declarations import NamedListener
from penstock.core.settings.tree import Settings
from penstock.security.acls.findings import rule_findings


@dataclass(frozen=True, slots=True)
class _Path:
    """The way of a client to a cluster, and its facts."""

    bootstrap: tuple[Address, ...]
    security: Security
    facts: ClusterFacts

    @property
    def is_open(self) -> bool:
        """Whether a client gets through to the brokers."""
        return bool(self.facts.advertised) and not self.facts.problem


def examine(
    settings: Settings,
    asked: tuple[Address, ...],
    timeout_seconds: float,
    security: Security = NO_SECURITY,
) -> Iterator[Judgement]:
    """Return every judgement, in the order of the checks; of this machine if no broker is set."""
    yield from judge_versions(probe_versions())
    if asked:
        paths = [_Path(asked, security, probe_cluster(asked, timeout_seconds, security))]
    else:
        is_declared = bool(settings.listeners)
        ports = [
            (one, probe_listener(one, timeout_seconds, is_declared=is_declared))
            for one in settings.all_listeners
        ]
        for _, port in ports:
            yield judge_port(port)
        yield from judge_directory(probe_directory(settings.data_dir), settings)
        yield from judge_limits(probe_limits(), settings)
        yield from _examine_security(settings, security)
        paths = list(_local_paths(ports, timeout_seconds, security))
    is_open = [one for one in paths if one.is_open]
    newest_ms = None
    if is_open:
        first = is_open[0]
        newest_ms = newest_time_of_broker(first.bootstrap, timeout_seconds, first.security)
    yield from judge_clock(probe_clock(newest_ms))
    for path in paths:
        yield from judge_cluster(path.facts)
    yield from _examine_access(settings, is_open, timeout_seconds, is_local=not asked)


def _examine_security(settings: Settings, security: Security) -> Iterator[Judgement]:
    """Examine the settings of TLS, logins and access, and the files and services behind them."""
    yield from judge_exposure(settings)
    if security != NO_SECURITY:
        yield from judge_client_protocol(settings, security.protocol)
    certificates = probe_certificates(settings, security.tls)
    yield from judge_certificates(certificates, SystemClock().now_ms())
    for facts in probe_sources(settings):
        yield judge_source(facts)


def _local_paths(
    ports: Sequence[tuple[NamedListener, PortFacts]], timeout_seconds: float, security: Security
) -> Iterator[_Path]:
    """Examine the clients of each listener that answers and whose credentials are known."""
    for listener, port in ports:
        if not (port.answers_as_broker or port.needs_client_certificate):
            continue
        if listener.protocol not in (NO_SECURITY.protocol, security.protocol):
            continue
        used = security if listener.protocol == security.protocol else NO_SECURITY
        # Clients verify the name in a certificate: it is that of the advertised address.
        address = advertised_address(listener) if listener.has_tls else local_address(listener)
        yield _Path((address,), used, probe_cluster((address,), timeout_seconds, used))


def _examine_access(
    settings: Settings, paths: Sequence[_Path], timeout_seconds: float, *, is_local: bool
) -> Iterator[Judgement]:
    """Examine the rules and users of the cluster, by the client that sees the most."""
    rules_file = settings.security.acl_file or ""
    known = file_rules(settings) if is_local else ()
    seen = [probe_access(one.bootstrap, timeout_seconds, one.security) for one in paths]
    best = max(seen, key=_extent, default=None)
    if best is not None:
        is_loopback = all(one.is_loopback for one in paths[0].facts.bootstrap)
        yield from judge_access(
            best,
            is_remote=not is_local and not is_loopback,
            rules_file=rules_file,
            rules_in_file=frozenset(known),
        )
        if is_local:
            yield from judge_super_users(settings, best)
    if known and (best is None or best.rules is None):
        yield from judge_rules(
            rule_findings(known, {}),
            len(known),
            rules_file=rules_file,
            rules_in_file=frozenset(known),
        )


def _extent(facts: AccessFacts) -> tuple[bool, int, bool]:
    """Return how much the caller sees, to compare callers."""
    return facts.rules is not None, len(facts.existing), facts.users is not None
