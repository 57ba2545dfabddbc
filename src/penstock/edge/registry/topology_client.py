"""`TopologyClient`: keeps one node registered, and its topology up to date.

It polls the registry. An answer that differs is written to `topology.json` first and followed then,
so a node never uses an instance number that its disk does not have. Every failure is logged once,
kept in `problem`, and changes nothing: the last good topology is used for ever.

    TopologyClient.topology      the topology in force; None before the first answer
    followers                    called with each new topology, on the event loop

It does NOT start pipes: its followers do.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from penstock.core.clock import Clock
from penstock.edge.registry.documents import (
    Disk,
    Health,
    Registration,
    TopologyDocument,
    entity_tag,
)
from penstock.edge.registry.node_entry import Topology
from penstock.edge.registry.node_roles import Role
from penstock.edge.registry.registry_errors import RegistryUnreachableError
from penstock.edge.registry.registry_http import HttpAnswer
from penstock.edge.registry.topology_file import read_topology, write_topology
from penstock.edge.registry.topology_follower import (
    RefusedAnswer,
    TopologyFollower,
    pause_seconds,
    plain,
    topology_of,
)

logger = logging.getLogger(__name__)

REPORT_POLLS: Final = 4
"""A node reports its disk and its lag with every fourth poll, and a changed state at once."""
JOIN_HEADER: Final = "Penstock-Join-Token"
_PREFIX: Final = "/registry/v1"
_OK: Final = 200
_NOT_MODIFIED: Final = 304
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_AGAIN: Final = frozenset({_NOT_FOUND, _CONFLICT})
"""Answers to a poll after which the node registers again."""

Follower = Callable[[Topology], None]


class Http(Protocol):
    """Calls to the registry: `RegistryHttp`, or a fake."""

    async def call(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> HttpAnswer:
        """Return the answer of any status; raise `RegistryUnreachableError` without one."""
        ...


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What a node says about itself now."""

    addresses: Mapping[str, str]
    disk: Disk | None = None
    health: Health | None = None


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node says about itself for as long as it runs."""

    id: str
    boot: str
    """A random text of this process."""
    token: str | None
    """None: a certificate is the key."""
    join_token: str | None = None
    wanted_role: Role | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    version: str = ""


class TopologyClient:
    """The place of one node in the tree, kept up to date by `run`."""

    def __init__(
        self,
        facts: NodeFacts,
        http: Http,
        path: str,
        clock: Clock,
        *,
        interval_seconds: float,
        report: Callable[[], NodeReport],
        fraction: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`path`: of `topology.json`, which is read now. `report` is called on a thread.

        `fraction` returns a random number from 0 to 1.
        """
        self._facts = facts
        self._http = http
        self._path = path
        self._clock = clock
        self.interval_seconds = interval_seconds
        self._report = report
        self._fraction = fraction
        self._sleep = sleep
        last, problem = read_topology(path)
        if problem:
            logger.warning("%s; this node registers again", problem)
        self._follower = TopologyFollower(facts.id, last)
        self._is_registered = False
        self._is_stored = True
        """Whether the last answer is on disk."""
        self._stored_instance = 0 if self._follower.last is None else self._follower.last.instance
        self._polls = 0
        self._reported: tuple[Mapping[str, str], str] | None = None
        self.followers: list[Follower] = []
        self.health_source: Callable[[], Health | None] = _no_health
        """Returns the health of the pipes; pipes replace it."""
        self.problem: str | None = None
        """Why the last call failed; None if it did not."""
        self.contact_at_seconds: float | None = None
        """When the registry answered last, on the monotonic clock."""

    @property
    def topology(self) -> Topology | None:
        """The topology in force."""
        last = self._follower.last
        return None if last is None else topology_of(last)

    async def run(self) -> None:
        """Poll until cancelled."""
        if (known := self.topology) is not None:
            self._announce(known)
        pause = self._follower.first_pause_seconds(self.interval_seconds, self._fraction())
        while True:
            await self._sleep(pause)
            retry_after = await self.turn()
            pause = pause_seconds(self.interval_seconds, self._fraction(), retry_after)

    async def turn(self) -> float | None:
        """Call the registry once; return the pause that it asks for, if it does."""
        report = await asyncio.to_thread(self._report)
        report = replace(report, health=self.health_source())
        registers = self._must_register(report)
        try:
            answer = await (self._register(report) if registers else self._poll())
        except RegistryUnreachableError as error:
            self._failed(str(error))
            return None
        if answer.status == _NOT_MODIFIED and not registers:
            self._follower.confirm()
            self._succeeded()
        elif answer.status == _OK:
            await self._accept(answer.body, report if registers else None)
        else:
            self._is_registered = self._is_registered and answer.status not in _AGAIN
            self._failed(f"the registry answered {answer.status}: {_detail(answer.body)}")
        return _retry_after(answer)

    def _must_register(self, report: NodeReport) -> bool:
        self._polls += 1
        if not self._is_registered or not self._is_stored or self._polls >= REPORT_POLLS:
            return True
        return self._reported != _notable(report)

    async def _register(self, report: NodeReport) -> HttpAnswer:
        facts = self._facts
        body = Registration(
            addresses=dict(report.addresses),
            labels=dict(facts.labels),
            version=facts.version,
            disk=report.disk,
            health=report.health,
            wanted_role=facts.wanted_role,
            instance=self._stored_instance,
            boot=facts.boot,
        )
        headers = self._headers()
        if facts.join_token is not None:
            headers[JOIN_HEADER] = facts.join_token
        data = body.model_dump_json().encode()
        return await self._http.call("PUT", f"{_PREFIX}/nodes/{facts.id}", headers, data)

    async def _poll(self) -> HttpAnswer:
        last = self._follower.last
        assert last is not None
        headers = self._headers() | {"If-None-Match": entity_tag(last)}
        path = f"{_PREFIX}/topology/{self._facts.id}?instance={last.instance}"
        return await self._http.call("GET", path, headers)

    def _headers(self) -> dict[str, str]:
        token = self._facts.token
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    async def _accept(self, body: bytes, reported: NodeReport | None) -> None:
        found = self._follower.judge(body)
        if isinstance(found, RefusedAnswer):
            self._failed(f"an answer of the registry is refused: {plain(found.reason)}")
            return
        if found != self._follower.last or not self._is_stored:
            await self._store(found)
        if reported is not None:
            self._is_registered, self._polls = True, 0
            self._reported = _notable(reported)
        if self._follower.follow(found):
            self._announce(topology_of(found))
        if self._is_stored:
            self._succeeded()

    async def _store(self, found: TopologyDocument) -> None:
        try:
            await asyncio.to_thread(write_topology, self._path, found)
        except OSError as error:
            self._is_stored = False
            self._failed(f"{self._path} cannot be written: {error.strerror}")
        else:
            self._is_stored = True
            self._stored_instance = found.instance

    def _announce(self, topology: Topology) -> None:
        parent = "no parent" if topology.parent is None else f"parent {topology.parent.id}"
        logger.info(
            "node %s is %s with %s (revision %d)",
            topology.id,
            topology.role,
            parent,
            topology.revision,
        )
        for follow in self.followers:
            follow(topology)

    def _succeeded(self) -> None:
        self.contact_at_seconds = self._clock.monotonic()
        if self.problem is not None:
            logger.info("the registry answers again")
        self.problem = None

    def _failed(self, problem: str) -> None:
        if problem != self.problem:
            logger.warning("%s. The last topology stays in force", problem.rstrip("."))
        self.problem = problem


def _no_health() -> Health | None:
    """Return the health of a node without pipes."""
    return None


def _notable(report: NodeReport) -> tuple[Mapping[str, str], str]:
    """Return the parts of a report whose change is reported at once."""
    return dict(report.addresses), "" if report.health is None else report.health.state


def _detail(body: bytes) -> str:
    """Return the detail and the remedy of a problem document."""
    import json  # only for a problem

    try:
        document = json.loads(body)
        text = f"{document['detail']}. {document.get('remedy', '')}".strip()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        text = "it gives no reason"
    return plain(text)


def _retry_after(answer: HttpAnswer) -> float | None:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
