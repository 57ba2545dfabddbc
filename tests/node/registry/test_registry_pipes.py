"""Pipes whose parent and topics come from the registry."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.settings.pipe_declarations import PipeDeclaration
from penstock.edge.pipes.pipe_health import Health, State
from penstock.edge.registry.node_entry import Parent, Topology
from penstock.edge.registry.node_roles import Role
from penstock.node.registry.following import _adapt_again, report_pipes
from penstock.node.registry.registry_pipes import resolved

TOPOLOGY = Topology(
    id="store",
    role=Role.POS,
    parent=Parent("root", {"kafka": "root:9092"}),
    down=("prices", "promo.*"),
    up=(),
    revision=1,
    instance=1,
)
FIXED = PipeDeclaration(name="fixed", parent="hq:9092", topics=("a",))


def pipe(*topics: str) -> PipeDeclaration:
    return PipeDeclaration(name="hq", parent="registry", topics=topics, on_gap="skip")


def test_address_and_topics_come_from_the_registry() -> None:
    fixed, found = resolved((FIXED, pipe("*")), TOPOLOGY)
    assert fixed is FIXED
    assert (found.parent, found.topics) == ("root:9092", ("prices", "promo.*"))
    assert (found.name, found.on_gap) == ("hq", "skip"), "the rest is as declared"


def test_declared_topics_select() -> None:
    (found,) = resolved((pipe("promo*", "other"),), TOPOLOGY)
    assert found.topics == ("promo.*",)


@pytest.mark.parametrize(
    "topology", [None, replace(TOPOLOGY, parent=None), replace(TOPOLOGY, down=())]
)
def test_without_a_parent_or_topics_there_is_no_pipe(topology: Topology | None) -> None:
    assert resolved((FIXED, pipe("*")), topology) == (FIXED,)


def test_a_pipe_up_waits_for_its_parent_because_retention_asks_it() -> None:
    up = pipe("*").model_copy(update={"direction": "up", "site": "store"})
    assert resolved((up,), None) == (up,)
    lost = replace(TOPOLOGY, up=("sales",), parent=None)
    (found,) = resolved((up,), lost)
    assert (found.parent, found.topics) == ("registry", ("sales",))
    (found,) = resolved((up,), replace(TOPOLOGY, up=("sales",)))
    assert (found.parent, found.topics) == ("root:9092", ("sales",))
    assert resolved((up,), TOPOLOGY) == (), "the registry sends nothing up"


def status(name: str, health: Health, lag_records: int) -> SimpleNamespace:
    options = SimpleNamespace(name=name)
    return SimpleNamespace(options=options, health=health, lag_records=lag_records)


def test_the_registry_gets_the_worst_health_and_the_lag_of_all_pipes() -> None:
    statuses = [
        status("a", Health(State.HEALTHY), 3),
        status("b", Health(State.UNHEALTHY, "no contact " + "x" * 600), 4),
        status("c", Health(State.DEGRADED, "retrying"), 5),
    ]
    client: Any = SimpleNamespace()
    book: Any = SimpleNamespace(book=SimpleNamespace(statuses=lambda: statuses))
    report_pipes(client, book)
    found = client.health_source()
    assert (found.state, found.lag_records) == ("UNHEALTHY", 12)
    assert found.reason.startswith("pipe b: no contact x")
    del statuses[1:]
    assert (client.health_source().state, client.health_source().reason) == ("HEALTHY", "")
    statuses.clear()
    assert client.health_source() is None
    report_pipes(None, book)


def test_a_topology_that_cannot_be_put_in_force_does_not_end_the_broker() -> None:
    async def fail() -> None:
        raise ValueError("a defect")

    async def test() -> None:
        live: Any = SimpleNamespace(adapt_again=fail)
        ground: Any = SimpleNamespace(live=live)
        await _adapt_again(ground)

    asyncio.run(test())
