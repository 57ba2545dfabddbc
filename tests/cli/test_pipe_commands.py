"""`penstock pipe` and `penstock mirror`, against a parent and a child in this process."""

import json
from collections.abc import Iterator

import pytest

from penstock.cli.pipe import mirror
from penstock.testing import Broker
from tests.cli.conftest import Penstock
from tests.node.pipes.pipe_scene import TOPIC, Operator, child_settings, down_pipe, until


@pytest.fixture
def parent() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic(TOPIC)
        running.produce(TOPIC, "one", "two")
        yield running


@pytest.fixture
def child(parent: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    with Broker(child_settings([down_pipe(parent.bootstrap_server)])) as running:
        monkeypatch.setenv("PENSTOCK_ADMIN_URL", Operator(running).url)
        Operator(running).wait_in_step()
        yield running


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(mirror, "LOOK_SECONDS", 0.02)
    with Broker(child_settings([])) as running:
        monkeypatch.setenv("PENSTOCK_ADMIN_URL", Operator(running).url)
        yield running


def test_list(penstock: Penstock, child: Broker, parent: Broker) -> None:
    done = penstock("pipe", "list")
    assert done.code == 0
    assert "HEALTHY" in done.output
    assert parent.bootstrap_server in done.output
    (pipe,) = json.loads(penstock("pipe", "list", "--json").output)
    assert (pipe["name"], pipe["lag_records"], pipe["is_in_step"]) == ("hq", 0, True)


def test_a_broker_without_pipes_has_an_empty_list(penstock: Penstock, alone: Broker) -> None:
    assert json.loads(penstock("pipe", "list", "--json").output) == []
    assert penstock("pipe", "list").output == (
        "no pipes; add one with [[pipes]] in the settings file of the broker\n"
    )


def test_status(penstock: Penstock, child: Broker) -> None:
    done = penstock("pipe", "status", "hq")
    assert done.code == 0
    assert "pipe hq from" in done.output
    assert "copying" in done.output
    document = json.loads(penstock("pipe", "status", "hq", "--json").output)
    assert document["partitions"][0]["end_offset"] == 2


def test_status_without_partitions(
    penstock: Penstock, parent: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(child_settings([down_pipe(parent.bootstrap_server, topics=("other",))])) as running:
        monkeypatch.setenv("PENSTOCK_ADMIN_URL", Operator(running).url)
        done = penstock("pipe", "status", "hq")
    assert done.output.splitlines()[-1].startswith("no partitions: the parent has none of")


def test_an_unknown_pipe(penstock: Penstock, child: Broker) -> None:
    for words in (["status"], ["pause"], ["resume"], ["restore", "--yes"], ["promote", "--yes"]):
        done = penstock("pipe", words[0], "nothing", *words[1:])
        assert done.code == 1
        assert "pipe 'nothing' not found" in done.errors
        assert "penstock pipe list" in done.errors


def test_pause_and_resume(penstock: Penstock, child: Broker) -> None:
    assert penstock("pipe", "pause", "hq").output == "pipe hq paused\n"
    assert Operator(child).pipe()["is_paused"] is True
    assert penstock("pipe", "resume", "hq").output == "pipe hq resumed\n"
    assert Operator(child).pipe()["is_paused"] is False


def test_promote_and_restore(penstock: Penstock, child: Broker) -> None:
    refused = penstock("pipe", "promote", "hq")
    assert refused.code == 2
    assert "--yes" in refused.errors
    assert penstock("pipe", "promote", "hq", "--yes").output == f"{TOPIC} promoted\n"
    child.produce(TOPIC, "three")
    again = penstock("pipe", "promote", "hq", "--topic", TOPIC, "--yes")
    assert "is not a mirror of the pipe" in again.errors
    until(lambda: Operator(child).pipe()["promoted"] == [TOPIC])
    assert penstock("pipe", "restore", "hq", "--yes").output == f"{TOPIC} restored\n"
    until(lambda: len(child.records(TOPIC)) == 2)


def test_mirror_until_in_step(penstock: Penstock, alone: Broker, parent: Broker) -> None:
    done = penstock("mirror", "--from", parent.bootstrap_server, "--topic", "*", "--until-in-step")
    assert done.code == 0, done.errors
    assert "in step: move your clients now" in done.output
    assert "penstock pipe promote mirror" in done.output
    assert len(alone.records(TOPIC)) == 2
    parent.produce(TOPIC, "three")
    assert len(alone.records(TOPIC, count=3)) == 3  # the broker copies on
    other = penstock("mirror", "--from", parent.bootstrap_server, "--topic", "x")
    assert "runs with other options" in other.errors
    assert penstock("pipe", "promote", "mirror", "--yes").output == f"{TOPIC} promoted\n"


def test_mirror_until_interrupted(
    penstock: Penstock, alone: Broker, parent: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.cli.pipe.mirror.sleep", interrupted)
    done = penstock("mirror", "--from", parent.bootstrap_server, "--topic", TOPIC)
    assert done.code == 0
    assert "stopped. The copies stay read-only" in done.output
    assert json.loads(penstock("pipe", "list", "--json").output) == []


def test_a_declared_pipe_cannot_be_ended_over_the_admin_port(child: Broker) -> None:
    with pytest.raises(AssertionError, match="declared in the settings file"):
        Operator(child).ask("DELETE", "/hq")
