"""Completion in a real bash, with commands, options, choices and names from a real broker."""

import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from penstock.cli import brokers
from penstock.cli.completing import answered_in_time, complete_groups, complete_topics
from penstock.cli.main import penstock as root
from penstock.cli.topic import describe
from penstock.client.calls import NewTopic
from penstock.client.cluster import Cluster
from penstock.client.groups.groups import Groups
from penstock.client.transport.addresses import Address, parse_addresses
from penstock.client.transport.blocking import connect
from penstock.core.errors import BrokerUnreachableError
from penstock.core.types import TopicPartition
from penstock.testing import Broker
from tests.cli.conftest import Penstock


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with (
        Broker() as running,
        Cluster(
            parse_addresses(running.bootstrap_server),
            lambda address: connect(address, timeout_seconds=30.0),
        ) as cluster,
    ):
        for name in ("orders", "orders-late", "payments"):
            cluster.create_topic(NewTopic(name, 1))
        Groups(cluster).commit("billing", {TopicPartition("orders", 0): 0})
        yield running


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """`penstock` as a file on the path, as pip makes it."""
    path = tmp_path / "bin" / "penstock"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m penstock "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


COMPLETE = """
eval "$(penstock completion bash)"
COMP_WORDS=({words})
COMP_CWORD={position}
_penstock_completion "${{COMP_WORDS[0]}}" "${{COMP_WORDS[COMP_CWORD]}}" ""
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(command: Path, broker: Broker, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    script = COMPLETE.format(words=" ".join(f"'{word}'" for word in words), position=len(words) - 1)
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={
            **os.environ,
            "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PENSTOCK_BOOTSTRAP_SERVER": broker.bootstrap_server,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_and_options(command: Path, broker: Broker) -> None:
    assert completed(command, broker, "penstock", "pro") == ["produce"]
    assert "--compression" in completed(command, broker, "penstock", "produce", "--com")


@pytest.mark.interop
def test_bash_completes_names_from_the_broker(command: Path, broker: Broker) -> None:
    assert tried(command, broker, "penstock", "consume", "ord") == ["orders", "orders-late"]
    assert tried(command, broker, "penstock", "group", "describe", "b") == ["billing"]


def tried(command: Path, broker: Broker, *words: str) -> list[str]:
    """What is offered; a busy machine may be too slow, and a person presses Tab again."""
    deadline = time.monotonic() + 100
    while not (found := completed(command, broker, *words)) and time.monotonic() < deadline:
        pass
    return found


def context_for(broker: Broker, **params: object) -> click.Context:
    context = click.Context(click.Command("test"))
    context.params = {"bootstrap": broker.bootstrap_server, **params}
    return context


ANYTHING = click.Argument(["names"])


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is completed, not how fast: a busy machine has its time."""

    def wait(ask: "object", seconds_max: float = 0.0) -> list[str]:
        assert callable(ask)
        found = ask()
        assert isinstance(found, list)
        return found

    def connect_patiently(address: Address, *, timeout_seconds: float, **_others: object) -> object:
        assert timeout_seconds < 1
        return connect(address, timeout_seconds=30.0)

    monkeypatch.setattr("penstock.cli.completing.answered_in_time", wait)
    monkeypatch.setattr(brokers, "connect", connect_patiently)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("is_there", [True, False])
def test_a_missing_command_config_opens_no_connection(
    broker: Broker, tmp_path: Path, *, is_there: bool
) -> None:
    """The connection would have no TLS."""
    file = tmp_path / "client.properties"
    if is_there:
        file.write_text("")
    words = ["--bootstrap-server", broker.bootstrap_server, "--command-config", str(file)]
    context = describe.make_context("describe", words, resilient_parsing=True)
    assert bool(complete_topics(context, ANYTHING, "o")) is is_there


@pytest.mark.usefixtures("patient")
def test_names_that_begin_so_and_are_not_there_yet(broker: Broker) -> None:
    found = complete_topics(context_for(broker, names=("orders",)), ANYTHING, "o")
    assert [one.value for one in found] == ["orders-late"]
    internal = complete_topics(context_for(broker), ANYTHING, "__")
    assert [one.value for one in internal] == ["__consumer_offsets"]
    groups = complete_groups(context_for(broker), ANYTHING, "")
    assert [one.value for one in groups] == ["billing"]


def test_a_broker_that_does_not_answer_costs_little_and_says_nothing() -> None:
    hanging = threading.Event()
    begun = time.monotonic()

    def ask() -> list[str]:
        hanging.wait(30)
        return ["late"]

    assert answered_in_time(ask, 0.01) == []
    assert time.monotonic() - begun < 5
    hanging.set()


def test_a_broker_that_is_not_there_says_nothing() -> None:
    def ask() -> list[str]:
        raise BrokerUnreachableError("nobody there")

    assert answered_in_time(ask, 5.0) == []


@pytest.mark.parametrize("wrong", ["localhost:nine", ",", "[::1"])
def test_a_malformed_address_says_nothing(
    wrong: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    context = click.Context(click.Command("read"))
    context.params = {"bootstrap": wrong}
    assert complete_topics(context, ANYTHING, "") == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(penstock: Penstock, shell: str) -> None:
    done = penstock("completion", shell)
    assert done.code == 0
    assert f"_PENSTOCK_COMPLETE={shell}_complete" in done.output


def test_an_unknown_shell_is_told_of_the_known_ones(penstock: Penstock) -> None:
    done = penstock("completion", "csh")
    assert done.code == 2
    assert "'bash', 'zsh', 'fish'" in done.errors


def test_completing_a_command_imports_none_of_them() -> None:
    loaded = set(sys.modules)
    found = root.shell_complete(click.Context(root), "")
    assert {"bench", "serve", "topic"} <= {one.value for one in found}
    assert not any(name.startswith("penstock.cli.") for name in set(sys.modules) - loaded)
