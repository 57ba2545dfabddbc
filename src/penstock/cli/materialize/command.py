"""`penstock materialize`: keep topics as tables of a SQLite file, and serve them over HTTP.

It accepts the variables CONSUMER_TYPE, CONSUMER_TOPIC, CONSUMER_GROUP, CONSUMER_PORT, BROKER_HOST,
BROKER_PORT and STORAGE_DATA_DIR in place of options. It joins no group: CONSUMER_GROUP becomes the
client id that brokers show.
"""

import asyncio
import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from penstock.cli.client_settings import chosen_bootstrap, client_settings
from penstock.cli.completing import complete_topics
from penstock.cli.numbers import Number, WholeNumber
from penstock.cli.options import (
    BOOTSTRAP_DEFAULT,
    BOOTSTRAP_VARIABLE,
    WrongUsageError,
    blamed_on,
    command_config_option,
    examples,
)
from penstock.client.opening import open_cluster
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.options import ClientOptions, checked_client_id
from penstock.client.transport.versions import CLIENT_NAME
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from penstock.materialize.snapshot_loading import OpenedSnapshot

PORT_DEFAULT: Final = 8082
NAME_DEFAULT: Final = "materialized"
TOKEN_CHARACTERS: Final = (16, 4_096)
RETRY_TIMEOUT_MS: Final = 5_000
"""Of one metadata call; the follower itself retries for ever, and shows it in /health."""

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def _default_bootstrap(environment: Mapping[str, str]) -> str:
    host, port = environment.get("BROKER_HOST"), environment.get("BROKER_PORT")
    if host is None and port is None:
        return BOOTSTRAP_DEFAULT
    return f"{host or 'localhost'}:{port or '9092'}"


@click.command(
    short_help="Keep topics as tables of a SQLite file, with REST.",
    epilog=examples(
        "penstock materialize price --store ./data --index $.sku",
        "penstock materialize price stock --bootstrap edge-1:9092 --once",
    ),
)
@click.argument("topics", nargs=-1, metavar="TOPIC...", shell_complete=complete_topics)
@click.option(
    "--bootstrap",
    "--bootstrap-server",
    "bootstrap",
    default=lambda: _default_bootstrap(os.environ),
    envvar=BOOTSTRAP_VARIABLE,
    show_envvar=True,
    show_default=BOOTSTRAP_DEFAULT,
    metavar="HOST:PORT",
    help="Broker to ask first; several with commas. Also from BROKER_HOST and BROKER_PORT.",
)
@command_config_option
@click.option(
    "--store",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("data"),
    envvar="STORAGE_DATA_DIR",
    show_envvar=True,
    show_default=True,
    metavar="DIR",
    help="Folder of the SQLite file.",
)
@click.option(
    "--name",
    default=NAME_DEFAULT,
    envvar="CONSUMER_TYPE",
    show_envvar=True,
    show_default=True,
    help="Name of the store: its file is NAME.sqlite.",
)
@click.option(
    "--index",
    "indexes",
    multiple=True,
    metavar="[TOPIC:][NAME=]PATH",
    help="A column with an index, from a JSON path such as $.sku; may be repeated.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=WholeNumber(min=0, max=65_535),
    default=PORT_DEFAULT,
    envvar="CONSUMER_PORT",
    show_envvar=True,
    show_default=True,
    help="Port to listen on; 0 chooses a free one.",
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="File with the bearer token of callers; needed beyond loopback addresses.",
)
@click.option(
    "--tls-certificate",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="PEM file with the certificate chain: serve HTTPS.",
)
@click.option(
    "--tls-key",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="PEM file with the key of the certificate.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A host name that requests may use; may be repeated.",
)
@click.option(
    "--query-seconds-max",
    type=Number(min=0, min_open=True, max=60),
    default=5.0,
    show_default=True,
    help="Time limit of a query.",
)
@click.option(
    "--query-rows-max",
    type=WholeNumber(min=1, max=1_000_000),
    default=10_000,
    show_default=True,
    help="Row limit of a query.",
)
@click.option(
    "--on-recreate",
    type=click.Choice(["stop", "rebuild"]),
    default="stop",
    show_default=True,
    help="When a topic was deleted and created again, or its log was cut.",
)
@click.option(
    "--refresh", is_flag=True, help="Load the topics again, beside the rows that are served."
)
@click.option(
    "--refresh-from",
    "places",
    multiple=True,
    metavar="DIR",
    help="Replace the rows of a topic by a snapshot of `penstock refresh build`; may be repeated.",
)
@click.option("--once", is_flag=True, help="Load up to the present ends and exit; no HTTP.")
def materialize(
    topics: tuple[str, ...],
    bootstrap: str,
    folder: Path,
    name: str,
    indexes: tuple[str, ...],
    host: str,
    port: int,
    token_file: Path | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    allowed_hosts: tuple[str, ...],
    query_seconds_max: float,
    query_rows_max: int,
    on_recreate: str,
    refresh: bool,
    places: tuple[str, ...],
    once: bool,
) -> None:
    """Keep each TOPIC as a table of a SQLite file, and serve it over HTTP.

    Rows and positions are written in one transaction, so the file is exactly the compacted topic
    up to its positions, after any crash. Topics may also come from CONSUMER_TOPIC, with commas.
    """
    from penstock.admin.browser_safety import allowed_names
    from penstock.materialize.bounded_queries import QueryBounds
    from penstock.materialize.index_columns import columns_of, parse_index
    from penstock.materialize.materializer import MaterializeOptions, Materializer
    from penstock.materialize.rest_server import bind, tls_context
    from penstock.materialize.table_schema import check_topics

    chosen = _chosen_topics(topics, os.environ)
    with blamed_on("TOPIC"):
        check_topics(chosen)
    with blamed_on("--index"):
        parsed = [parse_index(text) for text in indexes]
        columns = {topic: columns_of(topic, parsed) for topic in chosen}
    if not _NAME.fullmatch(name):
        raise WrongUsageError(f"--name {name[:100]!r} is not a file name.", hint="Use letters.")
    token = _token(token_file, host, is_served=not once)
    if (tls_certificate is None) != (tls_key is None):
        raise WrongUsageError(
            "--tls-certificate and --tls-key belong together.", hint="Give both, or neither."
        )
    context = None
    if tls_certificate is not None and tls_key is not None:
        context = tls_context(tls_certificate, tls_key)
    options = MaterializeOptions(
        folder / f"{name}.sqlite",
        columns,
        on_recreate=on_recreate,
        wants_refresh=refresh,
        snapshots=_snapshots(places, chosen),
        allowed_names=allowed_names(",".join(allowed_hosts), host),
        token=token,
        bounds=QueryBounds(query_seconds_max, query_rows_max),
    )
    client = _client_options(bootstrap, os.environ)
    with open_cluster(client, repeats_first_contact=not once) as cluster:
        service = Materializer(options, cluster)
        try:
            if once:
                service.load()
                return
            with bind(host, port) as bound:
                scheme = "http" if context is None else "https"
                shown = f"[{host}]" if ":" in host else host
                address = f"{scheme}://{shown}:{bound.getsockname()[1]}"
                message = f"Serving {', '.join(chosen)} from {options.path} at {address}/v1"
                asyncio.run(service.serve(bound, context, ready=lambda: click.echo(message)))
        finally:
            service.close()


def _chosen_topics(topics: tuple[str, ...], environment: Mapping[str, str]) -> list[str]:
    given = list(topics) or [
        part.strip() for part in environment.get("CONSUMER_TOPIC", "").split(",") if part.strip()
    ]
    if not given:
        raise WrongUsageError(
            "no topic was given.", hint="Name a topic, or set CONSUMER_TOPIC: a name, or several."
        )
    return list(dict.fromkeys(given))


def _snapshots(places: tuple[str, ...], topics: list[str]) -> "dict[str, OpenedSnapshot]":
    from penstock.materialize.snapshot_loading import open_snapshot

    found = {}
    for place in places:
        opened = open_snapshot(place)
        name = opened.manifest.topic
        if name not in topics or name in found:
            raise WrongUsageError(
                f"--refresh-from {place}: it is a snapshot of {name!r}.",
                hint="Name each snapshot once, and its topic as TOPIC.",
            )
        found[name] = opened
    return found


def _client_options(bootstrap: str, environment: Mapping[str, str]) -> ClientOptions:
    settings = client_settings()
    client_id = settings.client_id
    if client_id == CLIENT_NAME and environment.get("CONSUMER_GROUP"):
        client_id = checked_client_id(environment["CONSUMER_GROUP"])
    with blamed_on("--bootstrap"):
        addresses = parse_addresses(chosen_bootstrap(bootstrap, settings))
    return ClientOptions(
        tuple(addresses),
        client_id,
        retry_timeout_ms=RETRY_TIMEOUT_MS,
        security=settings.security,
    )


def _token(path: Path | None, host: str, *, is_served: bool) -> bytes | None:
    if path is None:
        if is_served and not _is_loopback(host):
            raise WrongUsageError(
                f"--host {host} is not a loopback address, and there is no token.",
                hint="Write a token into a file and name it with --token-file.",
            )
        return None
    try:
        token = path.read_bytes()[: TOKEN_CHARACTERS[1] + 2].strip()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}.") from error
    low, high = TOKEN_CHARACTERS
    if not low <= len(token) <= high or not all(33 <= byte <= 126 for byte in token):
        raise ConfigError(
            f"{path} has no token: {low} to {high} visible ASCII characters, without spaces.",
            hint="Create one: `openssl rand -hex 32`.",
        )
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
