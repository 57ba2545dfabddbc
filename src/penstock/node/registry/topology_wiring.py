"""The client of the registry in a broker: its facts, its report, its task.

It is imported only if `registry.url` is set. The task ends with the broker. Nothing that the
registry does, or does not do, stops the broker or its clients.
"""

import asyncio
import os
import random
import secrets
import shutil
import ssl
from collections.abc import Sequence
from contextlib import AsyncExitStack

from penstock.cluster.image import Endpoint
from penstock.cluster.link.lasting import kept
from penstock.core.clock import Clock
from penstock.core.errors import ConfigError
from penstock.core.metrics import Registry
from penstock.core.settings.registry_settings import RegistrySettings
from penstock.core.settings.tree import Settings
from penstock.core.version import penstock_version
from penstock.edge.registry.documents import Disk
from penstock.edge.registry.node_entry import KAFKA
from penstock.edge.registry.node_roles import Role
from penstock.edge.registry.registry_http import RegistryHttp, url_problem
from penstock.edge.registry.topology_client import NodeFacts, NodeReport, TopologyClient
from penstock.edge.registry.topology_file import (
    FILE_NAME,
    TOKEN_NAME,
    read_or_create_token,
    read_token,
)


async def open_topology(
    settings: Settings,
    endpoints: Sequence[Endpoint],
    clock: Clock,
    metrics: Registry,
    tasks: asyncio.TaskGroup,
    stack: AsyncExitStack,
) -> TopologyClient:
    """Return the client, which has begun to poll; leaving `stack` ends it. Raise `ConfigError`."""
    given = settings.registry
    assert given.url is not None
    if (problem := url_problem(given.url)) is not None:
        raise ConfigError(f"registry.url = {given.url!r} {problem}", hint="Correct the setting.")
    client = await asyncio.to_thread(_client, settings, _address(endpoints[0]), clock)
    metrics.gauge(
        "registry_reachable",
        "Whether the last call to the registry succeeded: 1, or 0.",
        lambda: 1 if client.problem is None and client.contact_at_seconds is not None else 0,
    )
    task = tasks.create_task(kept(client.run, "registry"))
    stack.push_async_callback(_end, task)
    return client


def _client(settings: Settings, advertised: str, clock: Clock) -> TopologyClient:
    """Return the client; it reads files, so it is called on a thread."""
    given, directory = settings.registry, settings.data_dir
    assert given.url is not None

    def report() -> NodeReport:
        try:
            usage = shutil.disk_usage(directory)
        except OSError:
            return NodeReport({KAFKA: advertised})  # the broker itself reports a failing disk
        return NodeReport({KAFKA: advertised}, Disk(free_bytes=usage.free, total_bytes=usage.total))

    return TopologyClient(
        _facts(settings),
        RegistryHttp(given.url, _context(given)),
        os.path.join(directory, FILE_NAME),
        clock,
        interval_seconds=given.poll_interval_ms / 1_000,
        report=report,
        fraction=random.random,
    )


def _facts(settings: Settings) -> NodeFacts:
    given = settings.registry
    token = None
    if given.certificate is None:
        path = given.token_file
        token = (
            read_token(path)
            if path is not None
            else read_or_create_token(
                os.path.join(settings.data_dir, TOKEN_NAME), secrets.token_urlsafe
            )
        )
    join = None if given.join_token_file is None else read_token(given.join_token_file)
    return NodeFacts(
        id=given.node_id or f"node-{settings.node.id}",
        boot=secrets.token_hex(16),
        token=token,
        join_token=join,
        wanted_role=None if given.role is None else Role(given.role),
        labels=given.label_map,
        version=penstock_version(),
    )


def _context(given: RegistrySettings) -> ssl.SSLContext | None:
    """Return the TLS of the URL; None without TLS."""
    assert given.url is not None
    if not given.url.startswith("https://"):
        return None
    try:
        context = ssl.create_default_context(cafile=given.ca)
        if given.certificate is not None:
            context.load_cert_chain(given.certificate, given.key)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the TLS files of [registry] cannot be used: {error}",
            hint="Check registry.ca, registry.certificate and registry.key.",
        ) from error
    return context


def _address(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
