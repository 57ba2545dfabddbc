"""`penstock doctor`: reports problems, each with a remedy.

It checks this machine with the settings of `penstock serve`, and a broker as a client would. It
changes nothing: the small file for the sync test has no name and is deleted at once. Exit code 0:
no problems; 1: at least one problem.
"""

import socket
from collections.abc import Iterator
from dataclasses import replace

import click

from penstock.cli import exits
from penstock.cli.client_settings import client_settings
from penstock.cli.doctor.facts import ClusterFacts, PortFacts
from penstock.cli.doctor.host import (
    probe_clock,
    probe_directory,
    probe_limits,
    probe_port,
    probe_versions,
)
from penstock.cli.doctor.judging import (
    FINDING,
    FINE,
    NOTE,
    Judgement,
    judge_clock,
    judge_cluster,
    judge_directory,
    judge_limits,
    judge_port,
    judge_versions,
)
from penstock.cli.doctor.network import newest_time_of_broker, probe_address, probe_cluster
from penstock.cli.options import (
    TIMEOUT_SECONDS,
    blamed_on,
    command_config_option,
    examples,
    json_option,
    settings_file_option,
)
from penstock.cli.output import print_colored, print_json, print_table
from penstock.cli.settings_file import load
from penstock.client.security.options import NO_SECURITY, Security
from penstock.client.transport.addresses import Address, parse_addresses
from penstock.core.settings.tree import Settings

_COLORS = {FINE: "green", NOTE: "yellow", FINDING: "bold red"}
_WILDCARDS = frozenset({"", "0.0.0.0", "::", "*"})  # noqa: S104 (replaced by the local address)


@click.command(
    short_help="Find problems, with remedies.",
    epilog=examples(
        "penstock doctor",
        "penstock doctor --config /etc/penstock.toml",
        "penstock doctor --bootstrap-server broker.example:9092",
    ),
)
@click.option(
    "--bootstrap-server",
    "--bootstrap",
    "bootstrap",
    metavar="HOST:PORT",
    help="Look at this broker as a client would; several with commas. Without it, at the one that "
    "the settings name, if it runs.",
)
@command_config_option
@settings_file_option
@click.option("--data-dir", help="Look at this data directory instead of the settings'.")
@click.option(
    "--timeout",
    "timeout_seconds",
    type=TIMEOUT_SECONDS,
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for each connection and each answer.",
)
@json_option("Print everything that was looked at as a JSON document.")
def doctor(
    bootstrap: str | None,
    file: str | None,
    data_dir: str | None,
    timeout_seconds: float,
    as_json: bool,
) -> int:
    """Check this machine and a broker for problems, and print the remedies.

    It checks the port, the data directory and its disk, limits, memory, clocks, versions, and the
    addresses that a broker advertises. Exit code 0 when nothing was found, 1 otherwise.
    """
    if bootstrap is not None and data_dir is not None:
        raise click.UsageError(
            "--data-dir is looked at on this machine, and --bootstrap-server looks at a broker as "
            "a client: give one of them."
        )
    asked: tuple[Address, ...] = ()
    client = client_settings()
    if bootstrap is None and data_dir is None:
        bootstrap = client.bootstrap
    if bootstrap is not None:
        with blamed_on("--bootstrap-server"):
            asked = parse_addresses(bootstrap)
    settings = load(file, {"node.data_dir": data_dir}).settings
    # A broker on this machine has no TLS and no login.
    security = client.security if asked else NO_SECURITY
    judgements = list(examined(settings, asked, timeout_seconds, security))
    found = [one for one in judgements if one.level == FINDING]
    if as_json:
        print_json({"findings": len(found), "checks": [one.document() for one in judgements]})
    else:
        rows = [[one.check, one.level, one.words] for one in judgements]
        print_table(["check", "", "what"], rows, styles=_COLORS)
        for one in found:
            click.echo()
            print_colored([(f"{one.check}: ", _COLORS[FINDING]), (f"{one.words}.", "")])
            click.echo(f"  {one.remedy}")
        if not found:
            click.echo("\nNothing was found that needs you.")
    return exits.FAILED if found else exits.DONE


def examined(
    settings: Settings,
    asked: tuple[Address, ...],
    timeout_seconds: float,
    security: Security = NO_SECURITY,
) -> Iterator[Judgement]:
    """Return every judgement, in the order of the checks; of this machine if no broker is set."""
    yield from judge_versions(probe_versions())
    cluster: ClusterFacts | None = None
    if asked:
        cluster = probe_cluster(asked, timeout_seconds, security)
    else:
        port = _local_port(settings, timeout_seconds)
        yield judge_port(port)
        yield from judge_directory(probe_directory(settings.data_dir), settings)
        yield from judge_limits(probe_limits(), settings)
        if port.answers_as_broker:
            asked = (Address(_local_host(settings), port.port),)
            cluster = probe_cluster(asked, timeout_seconds, security)
    yield from judge_clock(probe_clock(_newest(cluster, asked, timeout_seconds, security)))
    if cluster is not None:
        yield from judge_cluster(cluster)


def _newest(
    cluster: ClusterFacts | None,
    asked: tuple[Address, ...],
    timeout_seconds: float,
    security: Security,
) -> int | None:
    if cluster is None or not cluster.advertised or cluster.problem:
        return None
    return newest_time_of_broker(asked, timeout_seconds, security)


def _local_host(settings: Settings) -> str:
    host = settings.listener.host
    return "localhost" if host in _WILDCARDS else host


def _local_port(settings: Settings, timeout_seconds: float) -> PortFacts:
    """Return the facts of the configured port, and the process that uses it."""
    host, port = settings.listener.host, settings.listener.port
    facts = probe_port("" if host in _WILDCARDS else host, port)
    if not facts.is_taken:
        return replace(facts, host=host)
    try:
        seen = probe_address(Address(_local_host(settings), port), timeout_seconds)
    except socket.gaierror:
        return facts
    return replace(facts, host=host, answers_as_broker=seen.speaks_kafka)
