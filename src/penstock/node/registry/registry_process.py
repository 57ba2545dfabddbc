"""`RegistryServer`: the registry as an async context manager, in its own process or a broker's.

    async with RegistryServer(RegistryOptions(data_dir="registry-data")) as server:
        print(server.url)

The directory has `registry.db`, and the tokens `operator.token` and `join.token`, which are created
at the first start and readable by their owner only. The HTTP server, its bounds, its rules for
browsers and its TLS are those of the admin port. An address that other machines reach needs TLS.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from starlette.types import Scope

from penstock.admin.app import CLIENT_CERTIFICATE
from penstock.admin.browser_safety import allowed_names, objection
from penstock.admin.server import HttpConnection, HttpServer
from penstock.broker.tls.handshake_failures import HandshakeFailures
from penstock.broker.tls.tls_files import TlsFiles
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import ConfigError
from penstock.core.loopback import is_loopback
from penstock.core.metrics import Registry
from penstock.edge.registry.identities import certificate_identity, token_identity
from penstock.edge.registry.registry_app import Keys, RegistryApp, RegistryDesk
from penstock.edge.registry.registry_service import RegistryService
from penstock.edge.registry.registry_store import RegistryStore
from penstock.edge.registry.topology_file import read_or_create_token
from penstock.node.admin_tls import AdminTls
from penstock.node.security.certificate_reload import CertificateReload
from penstock.security.certificates.der import CertificateError
from penstock.security.certificates.distinguished_name import distinguished_name

PORT_DEFAULT: Final = 8070
CONNECTIONS_MAX: Final = 1_024
"""Nodes connect for each poll: 10,000 nodes have about 330 short connections a second."""
CONNECTIONS_PER_ADDRESS_MAX: Final = 256
"""Many sites can share the address of one router."""
DATABASE_NAME: Final = "registry.db"
OPERATOR_TOKEN_NAME: Final = "operator.token"  # noqa: S105 (a file's name)
JOIN_TOKEN_NAME: Final = "join.token"  # noqa: S105 (a file's name)
BACKLOG: Final = 512
_NAME: Final = "registry"
_OWNER_ONLY: Final = 0o700


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """The settings of a registry."""

    data_dir: str = "registry-data"
    host: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None
    """Authorities of the certificates of nodes; None: nodes have tokens."""
    allowed_hosts: str | None = None
    is_insecure_allowed: bool = False

    def check(self) -> None:
        """Raise `ConfigError` for options that contradict each other."""
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("--certificate and --key belong together", hint="Give both, or none.")
        if self.client_ca is not None and self.certificate is None:
            raise ConfigError(
                "--client-ca needs --certificate and --key", hint="Give the three files."
            )
        is_open = self.certificate is None and not is_loopback(self.host)
        if is_open and not self.is_insecure_allowed:
            raise ConfigError(
                f"the registry on {self.host} would receive tokens without TLS",
                hint="Give --certificate and --key, listen on 127.0.0.1, or accept the risk with "
                "--allow-insecure.",
            )


class RegistryConnection(HttpConnection):
    """A connection of the registry: there are more of them than of an admin port."""

    def connection_limits(self) -> tuple[int, int]:
        """Return the limit of all connections, and that of one address."""
        return CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX


class RegistryServer:
    """One registry in this process. It can be started once."""

    def __init__(self, options: RegistryOptions, clock: Clock | None = None) -> None:
        options.check()
        self._options = options
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._desk: RegistryDesk | None = None
        self.port = options.port

    @property
    def url(self) -> str:
        """The URL of the registry."""
        scheme = "http" if self._options.certificate is None else "https"
        host = self._options.host
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def operator_token_file(self) -> str:
        """The path of the operator's token."""
        return os.path.join(self._options.data_dir, OPERATOR_TOKEN_NAME)

    @property
    def join_token_file(self) -> str:
        """The path of the join token."""
        return os.path.join(self._options.data_dir, JOIN_TOKEN_NAME)

    async def admit_root(self, node_id: str, token: str) -> None:
        """Create the ROOT that runs this registry, with this key; raise the error of the store."""
        assert self._desk is not None, "start it first"
        service, identity = self._desk.service, token_identity(token)
        await self._desk.run(lambda: service.admit_root(node_id, identity))

    async def __aenter__(self) -> Self:
        """Start; when it returns, the registry answers."""
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop: answer the requests that have begun, then close the file."""
        await self._stack.aclose()

    async def _start(self, stack: AsyncExitStack) -> None:
        options = self._options
        bound = _bind(options)
        stack.callback(bound.close)
        self.port = bound.getsockname()[1]
        keys, service = await asyncio.to_thread(self._open, stack)
        desk = self._desk = RegistryDesk(service)
        stack.callback(desk.stop)
        app = RegistryApp(desk, keys, _BrowserRules(options), _certificate)
        server = HttpServer(app, RegistryConnection)
        tls = await self._tls(stack)
        await server.start(bound, None if tls is None else tls.wrap)
        stack.push_async_callback(server.stop)

    def _open(self, stack: AsyncExitStack) -> tuple[Keys, RegistryService]:
        """Read the tokens and the file."""
        directory = self._options.data_dir
        try:
            os.makedirs(directory, mode=_OWNER_ONLY, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the directory {directory} cannot be created: {error.strerror}",
                hint="Name another one with --data-dir.",
            ) from error
        operator, join = (
            token_identity(read_or_create_token(path, secrets.token_urlsafe))
            for path in (self.operator_token_file, self.join_token_file)
        )
        store = RegistryStore(os.path.join(directory, DATABASE_NAME))
        stack.callback(store.close)
        service = RegistryService(store, self._clock, secrets.token_hex(16), secrets.token_urlsafe)
        return Keys(operator, join), service

    async def _tls(self, stack: AsyncExitStack) -> AdminTls | None:
        """Return the TLS of the port, whose files are watched; None without TLS."""
        options = self._options
        if options.certificate is None or options.key is None:
            return None
        files = TlsFiles(
            certificate=options.certificate,
            key=options.key,
            client_ca=options.client_ca,
            client_auth="none" if options.client_ca is None else "requested",
        )
        reload = await asyncio.to_thread(CertificateReload, {_NAME: files}, self._clock, Registry())
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        watching = tasks.create_task(reload.run())
        stack.callback(watching.cancel)
        tls = AdminTls(
            asyncio.get_running_loop(),
            reload.context_source(_NAME),
            HandshakeFailures(_NAME),
            self._clock,
        )
        stack.callback(tls.stop)
        return tls


def _bind(options: RegistryOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        bound = socket.create_server((options.host, options.port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno is not None else str(error)
        raise ConfigError(
            f"cannot listen on {options.host}:{options.port}: {reason}",
            hint="Choose another address with --host and --port.",
        ) from error
    bound.setblocking(False)  # noqa: FBT003 (positional only)
    return bound


class _BrowserRules:
    """`registry_app.Objection` by the rules of the admin port."""

    def __init__(self, options: RegistryOptions) -> None:
        self._names = allowed_names(options.allowed_hosts, options.host)

    def __call__(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> tuple[int, str] | None:
        # Load balancers send arbitrary names with their probes.
        open_path = "/health/" if path == "/health" else path
        found = objection(method, open_path, headers, self._names)
        return None if found is None else (found.problem.status, found.problem.detail)


def _certificate(scope: Scope) -> str | None:
    """Return the identity of the verified certificate of a connection."""
    certificate = scope.get("state", {}).get(CLIENT_CERTIFICATE)
    if certificate is None:
        return None
    try:
        return certificate_identity(distinguished_name(certificate))
    except CertificateError:
        return None
