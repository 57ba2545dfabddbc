"""A scripted broker and its door, and the application before them, without IO."""

import asyncio
import json
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from penstock.admin.app import make_app
from penstock.admin.desk import Desk
from penstock.admin.health import DirectoryFacts, Facts
from penstock.admin.ports import Caller, Credentials, Identity, WorkerFacts
from penstock.client.cluster import Cluster
from penstock.core.limit_use import LimitUse
from penstock.core.metrics import Registry
from penstock.security.principal import Principal

HEALTHY = Facts(
    is_started=True,
    is_stopping=False,
    directories=(DirectoryFacts("data", "enough"),),
    limits=(LimitUse("connections", 3, 100, 0, "connections"),),
)


IDENTITY = Identity(1, "cluster", "1.2.3", "127.0.0.1", 9092, 1_700_000_000_000)


@dataclass
class FakeView:
    """`admin.ports.BrokerView`."""

    current: Facts = HEALTHY
    metrics: Registry = field(default_factory=Registry)
    identity: Identity = IDENTITY
    known_workers: Sequence[WorkerFacts] = ()

    def facts(self) -> Facts:
        return self.current

    def workers(self) -> Sequence[WorkerFacts]:
        return self.known_workers

    def uptime_seconds(self) -> float:
        return 12.5


@dataclass
class FakeDoor:
    """`admin.ports.ClusterDoor`."""

    make: Callable[[], Cluster]

    def open(self, timeout_seconds: float, caller: Caller) -> Cluster:
        return self.make()


@dataclass
class FakeCheck:
    """`admin.ports.CallerCheck`: knows one header, and what its user may see."""

    authorization: str | None = None
    describes: bool = True
    challenge: str | None = 'Basic realm="penstock"'
    asked: list[str] = field(default_factory=list)
    """The operations that access was asked for."""

    def is_open(self, path: str) -> bool:
        return path.startswith("/health/")

    async def identify(self, given: Credentials) -> Caller | None:
        if given.authorization != self.authorization:
            return None
        return Caller(Principal("User", "caller"), given.address)

    def may_describe(self, caller: Caller, api: str = "") -> bool:
        self.asked.append(api)
        return self.describes


def no_cluster() -> Cluster:
    raise AssertionError("nobody is asked")


@dataclass(frozen=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def document(self) -> Any:  # noqa: ANN401 (any JSON)
        return json.loads(self.text)


def ask(
    method: str,
    path: str,
    *,
    view: FakeView | None = None,
    make_cluster: Callable[[], Cluster] = no_cluster,
    headers: Mapping[str, str] | None = None,
    content: bytes | AsyncIterable[bytes] | None = None,
    document: object = None,
    host: str = "127.0.0.1:8080",
    names: frozenset[str] = frozenset(),
    check: FakeCheck | None = None,
) -> Answered:
    """One request to the application."""

    async def run() -> Answered:
        desk = Desk(FakeDoor(make_cluster))
        app = make_app(view or FakeView(), desk, check or FakeCheck(), allowed_names=names)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            kind = {"content-type": "application/json"} if document is not None else {}
            found = await client.request(
                method,
                path,
                headers={**kind, **(headers or {})},
                content=json.dumps(document).encode() if document is not None else content,
            )
        desk.stop()
        return Answered(found.status_code, dict(found.headers), found.text)

    return asyncio.run(run())
