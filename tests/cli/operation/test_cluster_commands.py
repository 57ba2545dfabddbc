"""`penstock cluster status` and `restart-next` against three brokers."""

import pytest

from penstock.cli import exits
from tests.cli.conftest import Penstock
from tests.cli.operation.commands import Operated, operate
from tests.node.peers.three_brokers import until


def test_a_healthy_cluster(capfd: pytest.CaptureFixture[str]) -> None:
    async def act(operated: Operated) -> None:
        await operated.brokers.create("orders", 3)
        shown = await operated.penstock("cluster", "status")
        assert shown.code == exits.DONE
        assert shown.output.startswith("Healthy  3 brokers, 3 partitions\n")
        assert shown.output.count("running, controller") == 1
        document = await operated.document("cluster", "status")
        assert document["health"] == "Healthy"
        assert document["cluster_id"] == operated.brokers.image.cluster_id
        assert [one["id"] for one in document["brokers"]] == [1, 2, 3]
        for broker in document["brokers"]:
            assert broker["state"] == "running"
            assert (broker["leaders"], broker["replicas"]) == (1, 3)
            assert broker["bytes"] == 0
            assert broker["disk_bytes"] > broker["free_bytes"] > 0
        assert document["under_replicated"] == document["reassignments"] == []

    operate(capfd, act)


def test_a_broker_that_is_down(capfd: pytest.CaptureFixture[str]) -> None:
    async def act(operated: Operated) -> None:
        brokers = operated.brokers
        await brokers.create("orders", 3)
        await brokers.stop(3)
        await until(lambda: all(len(one.isr) == 2 for one in brokers.topic("orders").partitions))
        shown = await operated.penstock("cluster", "status")
        assert shown.code == exits.DEGRADED
        assert "Degraded: not reached: broker 3.\n" in shown.output
        assert "3 partitions under-replicated: orders-0, orders-1, orders-2." in shown.output
        assert "min in sync" in shown.output
        document = await operated.document("cluster", "status")
        assert [one["state"] for one in document["brokers"]] == ["running", "running", "down"]
        assert len(document["under_replicated"]) == 3
        assert document["under_min_insync_replicas"] == document["offline"] == []

        refused = await operated.penstock("cluster", "restart-next")
        assert refused.code == exits.FAILED
        assert "broker 3 is down: wait until it is back\n" in refused.output
        assert (
            "broker 1 is needed: orders-0 would have 1 in-sync replica, and needs 2 "
            "(and 2 more partitions)" in refused.output
        )
        facts = await operated.document("cluster", "restart-next")
        assert (facts["next"], facts["down"]) == (None, [3])
        assert {one["in_sync_left"] for one in facts["obstacles"]} == {1}

    operate(capfd, act)


def test_partitions_below_the_minimum_and_without_a_leader(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def act(operated: Operated) -> None:
        brokers = operated.brokers
        await brokers.create("orders", 1)
        await brokers.create("single", 1, ((3,),))
        await brokers.stop(3)
        await brokers.stop(2)
        await until(lambda: len(brokers.topic("orders").partitions[0].isr) == 1)
        shown = await operated.penstock("cluster", "status")
        assert shown.code == exits.CRITICAL
        assert "Critical: 1 partition without a leader: single-0.\n" in shown.output
        assert "Critical: 1 partition below min.insync.replicas: orders-0." in shown.output
        assert "Degraded: not reached: broker 2,3.\n" in shown.output
        document = await operated.document("cluster", "status")
        assert [one["topic"] for one in document["offline"]] == ["single"]
        assert [one["topic"] for one in document["under_min_insync_replicas"]] == ["orders"]

    operate(capfd, act)


def test_the_order_of_restarts(capfd: pytest.CaptureFixture[str]) -> None:
    async def act(operated: Operated) -> None:
        await operated.brokers.create("orders", 3)
        controller = operated.brokers.image.controller
        assert controller is not None
        order: list[int] = []
        for _ in range(3):
            done = ",".join(map(str, order))
            found = await operated.document("cluster", "restart-next", "--restarted", done)
            order.append(found["next"])
        assert order[-1] == controller.broker_id
        assert sorted(order) == [1, 2, 3]
        shown = await operated.penstock("cluster", "restart-next")
        assert shown.output.startswith(f"restart broker {order[0]} (")
        assert f"penstock cluster restart-next --restarted {order[0]}\n" in shown.errors
        done = ",".join(map(str, order))
        shown = await operated.penstock("cluster", "restart-next", "--restarted", done)
        assert shown[:2] == (exits.DONE, "all brokers are restarted\n")

    operate(capfd, act)


def test_a_single_replica_keeps_its_broker_up(capfd: pytest.CaptureFixture[str]) -> None:
    async def act(operated: Operated) -> None:
        await operated.brokers.create("single", 3, ((1,), (2,), (3,)))
        shown = await operated.penstock("cluster", "restart-next")
        assert shown.code == exits.FAILED
        assert "broker 2 has the only replica of single-1" in shown.output
        assert "penstock topic replicas single 3" in shown.output
        accepted = await operated.document("cluster", "restart-next", "--accept-single")
        assert accepted["next"] in (1, 2, 3)

    operate(capfd, act)


def test_wrong_words(penstock: Penstock) -> None:
    wrong = penstock("cluster", "restart-next", "--restarted", "1,x")
    assert wrong.code == exits.USAGE
    assert "'1,x' is not a list of broker ids" in wrong.errors
    assert penstock("cluster", "nothing").code == exits.USAGE


@pytest.mark.parametrize("name", ["status", "restart-next"])
def test_help_has_an_example(penstock: Penstock, name: str) -> None:
    shown = penstock("cluster", name, "--help")
    assert shown.code == exits.DONE
    assert "Example:\n    penstock cluster" in shown.output
    assert "--plain" in shown.output
    assert name in penstock("cluster", "--help").output
