"""`penstock broker drain`, `undrain` and `remove` against three and four brokers."""

import pytest

from penstock.cli import exits
from penstock.cli.broker import draining
from penstock.client.operation import move_runner
from penstock.cluster.image import BrokerState
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tests.cli.conftest import Penstock
from tests.cli.operation.commands import Operated, operate
from tests.node.peers.moving import has_log, produce
from tests.node.peers.three_brokers import ThreeBrokers, until


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(move_runner, "LOOK_SECONDS", 0.005)


def leaders(brokers: ThreeBrokers, topic: str) -> list[int]:
    return [one.leader for one in brokers.topic(topic).partitions]


async def forget(brokers: ThreeBrokers, broker_id: int) -> tuple[ErrorCode, str | None]:
    request = UnregisterBrokerRequest(broker_id=broker_id)
    answer = await brokers.ask(1, request, UnregisterBrokerResponse)
    return answer.error_code, answer.error_message


def test_a_drained_broker_leads_nothing_and_stays_in_sync(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def act(operated: Operated) -> None:
        brokers = operated.brokers
        await brokers.create("orders", 6)
        before = leaders(brokers, "orders")
        drained = await operated.penstock("broker", "drain", "2")
        assert drained[:2] == (exits.DONE, "broker 2 is drained: it leads no partitions\n")
        assert 2 not in leaders(brokers, "orders")
        assert all(2 in one.isr for one in brokers.topic("orders").partitions)
        assert brokers.image.brokers[2].state is BrokerState.RUNNING
        status = await operated.document("cluster", "status")
        assert [one["state"] for one in status["brokers"]] == ["running", "drained", "running"]
        assert status["health"] == "Healthy"
        # New topics: other brokers lead, and only a full set of replicas includes it.
        await brokers.create("later", 4)
        assert 2 not in leaders(brokers, "later")
        assert all(one.replicas[-1] == 2 for one in brokers.topic("later").partitions)
        undrained = await operated.document("broker", "undrain", "2")
        assert undrained == {"broker": 2, "drained": False, "led": before.count(2)}
        assert leaders(brokers, "orders") == before

    operate(capfd, act)


def test_a_drain_outlasts_a_restart(capfd: pytest.CaptureFixture[str]) -> None:
    async def act(operated: Operated) -> None:
        brokers = operated.brokers
        await brokers.create("orders", 3)
        assert (await operated.document("broker", "drain", "2"))["drained"] is True
        await brokers.stop(2)
        await brokers.start_one(2)
        await until(lambda: all(2 in one.isr for one in brokers.topic("orders").partitions))
        assert 2 not in leaders(brokers, "orders")
        # The others stop: then the drained broker leads, rather than none.
        await brokers.stop(1)
        await brokers.stop(3)
        await until(lambda: leaders(brokers, "orders") == [2, 2, 2])

    operate(capfd, act)


def test_a_drain_that_cannot_end(capfd: pytest.CaptureFixture[str]) -> None:
    async def act(operated: Operated) -> None:
        await operated.brokers.create("single", 1, ((2,),))
        stuck = await operated.penstock("broker", "drain", "2")
        assert stuck.code == exits.FAILED
        assert "broker 2 still leads 1 partition" in stuck.errors
        assert "single-0" in stuck.errors
        assert "penstock broker undrain 2" in stuck.errors
        unknown = await operated.penstock("broker", "drain", "7")
        assert unknown.code == exits.FAILED
        assert "broker 7 does not run" in unknown.errors

    operate(capfd, act)


def test_remove_moves_everything_then_forgets(capfd: pytest.CaptureFixture[str]) -> None:
    async def act(operated: Operated) -> None:
        brokers = operated.brokers
        await brokers.create("orders", 4)
        for index in range(4):
            await produce(brokers, b"x" * 100, index)
        refused = await operated.penstock("broker", "remove", "3", "--dry-run")
        assert refused.code == exits.FAILED
        assert "no other broker can take 4 partitions of broker 3" in refused.errors
        await operated.start_fourth()
        await until(lambda: brokers.image.brokers[4].state is BrokerState.RUNNING)
        plan = await operated.document("broker", "remove", "3", "--dry-run")
        assert plan["result"] == "planned"
        assert len(plan["moves"]) == 4
        assert plan["copied_bytes"] > 0
        assert all(3 in one.replicas for one in brokers.topic("orders").partitions)
        moved = await operated.document("broker", "remove", "3", "--yes", "--at-once", "2")
        assert moved["result"] == "empty"
        assert moved["moves"] == plan["moves"]
        for one in brokers.topic("orders").partitions:
            assert set(one.replicas) == set(one.isr) == {1, 2, 4}
        await until(lambda: not any(has_log(brokers, 3, index) for index in range(4)))
        code, message = await forget(brokers, 3)
        assert code is ErrorCode.POLICY_VIOLATION
        assert message is not None
        assert message.startswith("Broker ID 3 is running: ")
        await brokers.stop(3)
        removed = await operated.penstock("broker", "remove", "3", "--yes")
        assert removed[:2] == (exits.DONE, "broker 3 is removed from the cluster\n")
        assert 3 not in brokers.image.nodes
        assert "3" not in brokers.image.broker_settings
        again = await operated.penstock("broker", "remove", "3", "--yes")
        assert again.code == exits.FAILED
        assert "Broker ID 3 is not currently registered" in again.errors

    operate(capfd, act)


def test_a_broker_that_is_lost_is_replaced_and_forgotten(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def act(operated: Operated) -> None:
        brokers = operated.brokers
        await brokers.create("orders", 3)
        await operated.start_fourth()
        await brokers.stop(3)
        await until(lambda: all(3 not in one.isr for one in brokers.topic("orders").partitions))
        code, message = await forget(brokers, 3)
        assert code is ErrorCode.POLICY_VIOLATION
        assert message is not None
        assert message.startswith("Broker ID 3 has 3 replicas (orders-0, orders-1, orders-2): ")
        removed = await operated.document(
            "broker", "remove", "3", "--yes", "--throttle", "100000000"
        )
        assert removed["result"] == "removed"
        assert all(set(one.isr) == {1, 2, 4} for one in brokers.topic("orders").partitions)
        assert 3 not in brokers.image.nodes
        # The throttle is gone.
        assert "follower.replication.throttled.replicas" not in brokers.topic("orders").settings
        assert dict(brokers.image.broker_settings) == {}
        assert await forget(brokers, 3) == (
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "Broker ID 3 is not currently registered",
        )

    operate(capfd, act)


def test_an_interrupted_removal_goes_on(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(operated: Operated) -> None:
        brokers = operated.brokers
        await brokers.create("orders", 4)
        await operated.start_fourth()
        await until(lambda: brokers.image.brokers[4].state is BrokerState.RUNNING)

        def interrupt(_self: move_runner.MoveRunner, *_moves: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(move_runner.MoveRunner, "_disks", interrupt)
            stopped = await operated.penstock("broker", "remove", "3", "--yes", "--at-once", "1")
        assert stopped.code == exits.INTERRUPTED
        assert "Repeat the command with its options to continue" in stopped.errors
        assert any(3 in one.replicas for one in brokers.topic("orders").partitions)
        done = await operated.document("broker", "remove", "3", "--yes")
        assert done["result"] == "empty"
        assert all(3 not in one.replicas for one in brokers.topic("orders").partitions)

    operate(capfd, act)


def test_a_partition_without_a_leader_cannot_be_copied(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def act(operated: Operated) -> None:
        brokers = operated.brokers
        await brokers.create("single", 1, ((3,),))
        await brokers.stop(3)
        await until(lambda: brokers.leader("single", 0) == -1)
        refused = await operated.penstock("broker", "remove", "3", "--yes")
        assert refused.code == exits.FAILED
        assert "cannot be copied without a leader: single-0" in refused.errors

    operate(capfd, act)


def test_a_removal_asks_first(penstock: Penstock) -> None:
    refused = penstock("broker", "remove", "3")
    assert refused.code == exits.USAGE
    assert "--yes" in refused.errors
    assert penstock("broker", "remove", "x").code == exits.USAGE
    assert penstock("balance").code == exits.USAGE


def test_the_balance_of_a_new_broker(capfd: pytest.CaptureFixture[str]) -> None:
    async def act(operated: Operated) -> None:
        brokers = operated.brokers
        await brokers.create("orders", 8)
        await operated.start_fourth()
        await until(lambda: brokers.image.brokers[4].state is BrokerState.RUNNING)
        before = leaders(brokers, "orders")
        plan = await operated.document("balance", "--dry-run", "--max-moves", "3")
        assert len(plan["moves"]) == 3
        assert plan["moved"] is False
        assert leaders(brokers, "orders") == before
        done = await operated.document("balance", "--yes", "--max-moves", "100")
        assert done["moved"] is True
        counts = {one["broker"]: one["replicas"] for one in done["after"]}
        found = [one for state in brokers.topic("orders").partitions for one in state.replicas]
        assert {one: found.count(one) for one in (1, 2, 3, 4)} == counts
        assert max(counts.values()) - min(counts.values()) <= 1
        led = {one["broker"]: one["leaders"] for one in done["after"]}
        now = leaders(brokers, "orders")
        assert {one: now.count(one) for one in (1, 2, 3, 4)} == led
        again = await operated.penstock("balance", "--yes")
        assert again[:2] == (
            exits.DONE,
            "the brokers are balanced, or no move makes them more equal\n",
        )

    operate(capfd, act)
