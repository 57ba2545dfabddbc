"""`penstock topic replicas` against three brokers."""

import pytest

from penstock.cli import exits
from penstock.client.operation import move_runner
from penstock.core.errors import RequestTimedOutError
from tests.cli.conftest import Penstock
from tests.cli.operation.commands import Operated, operate
from tests.node.peers.moving import TOPIC, hold_back, move, moved, produce


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move_runner, "LOOK_SECONDS", 0.005)


def test_a_topic_gets_more_and_fewer_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    async def act(operated: Operated) -> None:
        brokers = operated.brokers
        await brokers.create(TOPIC, 2, ((1,), (2,)))
        assert await produce(brokers, b"record") == 0
        planned = await operated.document("topic", "replicas", TOPIC, "3", "--dry-run")
        assert (planned["result"], len(planned["moves"])) == ("planned", 2)
        assert [one["before"] for one in planned["moves"]] == [[1], [2]]
        assert len(brokers.topic(TOPIC).partitions[0].replicas) == 1
        grown = await operated.penstock("topic", "replicas", TOPIC, "3")
        assert grown.code == 0, grown.errors
        assert grown.output.splitlines()[-1] == "2 partitions of orders moved"
        for state in brokers.topic(TOPIC).partitions:
            assert set(state.replicas) == set(state.isr) == {1, 2, 3}
        again = await operated.penstock("topic", "replicas", TOPIC, "3")
        assert again.output == "orders has these replicas already\n"
        # The first replica stays.
        fewer = await operated.document("topic", "replicas", TOPIC, "1", "--partitions", "1")
        assert (fewer["result"], [one["after"] for one in fewer["moves"]]) == ("moved", [[2]])
        await moved(brokers, 1, (2,))
        assert len(brokers.topic(TOPIC).partitions[0].replicas) == 3
        placed = await operated.penstock("topic", "replicas", TOPIC, "--to", "3,1")
        assert placed.code == 0, placed.errors
        for index in (0, 1):
            await moved(brokers, index, (3, 1))
        assert brokers.topic(TOPIC).settings == {}

    operate(capsys, act)


def test_a_move_that_is_under_way_is_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    async def act(operated: Operated) -> None:
        brokers = operated.brokers
        await brokers.create(TOPIC, 1, ((1,),))
        await produce(brokers, b"record")
        await hold_back(brokers)
        await move(brokers, {0: (2, 3)})
        document = await operated.document("topic", "replicas", TOPIC, "--cancel")
        assert (document["result"], len(document["moves"])) == ("cancelled", 1)
        await moved(brokers, 0, (1,))
        nothing = await operated.penstock("topic", "replicas", TOPIC, "--cancel")
        assert nothing.output == "orders has these replicas already\n"

    operate(capsys, act)


def test_after_an_error_the_throttle_that_stays_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise RequestTimedOutError("no progress")

    async def act(operated: Operated) -> None:
        brokers = operated.brokers
        await brokers.create(TOPIC, 1, ((1,),))
        monkeypatch.setattr(move_runner.MoveRunner, "run", stop)
        words = ("topic", "replicas", TOPIC, "3")
        limited = await operated.penstock(*words, "--throttle", "100000000")
        assert limited.code == exits.FAILED
        assert "note: moves that began go on." in limited.errors
        assert "note: the limit of --throttle stays: leader.replication" in limited.errors
        assert "leader.replication.throttled.replicas" in brokers.topic(TOPIC).settings
        free = await operated.penstock(*words)
        assert "note: moves that began go on." in free.errors
        assert "--throttle" not in free.errors

    operate(capsys, act)


def test_wishes_that_cannot_be_met(capsys: pytest.CaptureFixture[str]) -> None:
    async def act(operated: Operated) -> None:
        await operated.brokers.create(TOPIC, 1, ((1,),))
        many = await operated.penstock("topic", "replicas", TOPIC, "4")
        assert many.code == exits.FAILED
        assert "4 replicas need 4 brokers: 3 brokers can have one." in many.errors
        assert "hint: Start another broker" in many.errors
        unknown = await operated.penstock("topic", "replicas", TOPIC, "--to", "1,9")
        assert "broker 9, but no such broker is registered" in unknown.errors
        absent = await operated.penstock("topic", "replicas", "absent", "2")
        assert "there is no topic absent" in absent.errors
        number = await operated.penstock("topic", "replicas", TOPIC, "2", "--partitions", "0,7")
        assert "orders has no partition 7: it has 1 partition" in number.errors

    operate(capsys, act)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "COUNT, --to and --cancel exclude each other"),
        (("3", "--to", "1"), "COUNT, --to and --cancel exclude each other"),
        (("--to", "1,1"), "has a number twice"),
        (("--to", "1-3"), "'1-3' is not a number"),
        (("--to", "one"), "'one' is not a number"),
        (("2", "--partitions", "5-2"), "'5-2' is not a range of numbers"),
        (("0",), "not a whole number from 1 to 100"),
    ],
)
def test_wrong_usage(penstock: Penstock, words: tuple[str, ...], message: str) -> None:
    outcome = penstock("topic", "replicas", TOPIC, *words)
    assert outcome.code == exits.USAGE
    assert message in outcome.errors


def test_help_names_the_command(penstock: Penstock) -> None:
    assert "replicas" in penstock("topic", "--help").output
    assert "penstock topic replicas orders 3" in penstock("topic", "replicas", "--help").output
