"""A registry in a broker that is a ROOT: it starts and ends with the broker.

The data directory of the broker has the folder `registry-data`, as that of `penstock registry`: the
file of the registry and its two tokens. The broker is a node of its own registry, with the role
ROOT and its key `registry.token`, which it creates at its first start.

It is imported only if `registry.serve_port` is set.
"""

import asyncio
import logging
import os
import secrets
from contextlib import AsyncExitStack
from typing import Final

from penstock.core.clock import Clock
from penstock.core.errors import ConfigError
from penstock.core.settings.tree import Settings
from penstock.edge.registry.topology_file import TOKEN_NAME, read_or_create_token, read_token
from penstock.node.registry.registry_process import RegistryOptions, RegistryServer

logger = logging.getLogger(__name__)

FOLDER: Final = "registry-data"


async def open_registry(settings: Settings, clock: Clock, stack: AsyncExitStack) -> Settings:
    """Start the registry; return the settings with its URL. Leaving `stack` stops it."""
    given = settings.registry
    assert given.serve_port is not None
    options = RegistryOptions(
        data_dir=os.path.join(settings.data_dir, FOLDER),
        host=given.serve_host,
        port=given.serve_port,
        certificate=given.serve_certificate,
        key=given.serve_key,
        client_ca=given.serve_client_ca,
        allowed_hosts=given.serve_allowed_hosts,
        is_insecure_allowed=settings.security.allow_insecure,
    )
    try:
        server = await stack.enter_async_context(RegistryServer(options, clock))
    except ConfigError as error:
        raise ConfigError(
            f"the registry in this broker: {error}",
            hint="Check registry.serve_port, registry.serve_host and the files of its TLS.",
        ) from error
    logger.info("the registry in this broker is ready on %s", server.url)
    if given.certificate is None:
        # With a client certificate an operator creates the node: its name is not known here.
        token = await asyncio.to_thread(_token, settings)
        await server.admit_root(given.node_id or f"node-{settings.node.id}", token)
    if given.url is not None:
        return settings
    registry = given.model_copy(update={"url": server.url})
    return settings.model_copy(update={"registry": registry})


def _token(settings: Settings) -> str:
    """Return the key of this broker, created at its first start."""
    path = settings.registry.token_file
    if path is not None:
        return read_token(path)
    return read_or_create_token(os.path.join(settings.data_dir, TOKEN_NAME), secrets.token_urlsafe)
