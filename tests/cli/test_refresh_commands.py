"""`penstock refresh install`, `send` and `verify` against real brokers."""

import json
from pathlib import Path

import pytest

from penstock.cli.main import run
from penstock.testing import Broker
from tests.node.pipes.pipe_scene import TOPIC, Operator, child_settings, down_pipe
from tests.node.refresh.refresh_scene import build, state_of, write


def test_a_snapshot_is_verified_installed_and_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker() as parent:
        parent.create_topic(TOPIC)
        write(parent, {"a": "1", "b": "2"})
        write(parent, {"a": "3"})
        build(parent.bootstrap_server, tmp_path)
        assert run(["refresh", "verify", str(tmp_path)]) == 0
        assert "2 records" in capsys.readouterr().out
        with Broker(child_settings([down_pipe(parent.bootstrap_server)])) as child:
            operator = Operator(child)
            operator.wait_in_step()
            words = ["refresh", "install", TOPIC, "--from", str(tmp_path), "--admin", operator.url]
            assert run([*words, "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["state"] == "DONE"
            assert state_of(child) == {"a": (2, "3"), "b": (1, "2")}
            assert run(["refresh", "send", TOPIC, "--admin", operator.url]) == 0
            assert "0 subscribers" in capsys.readouterr().out
            words[4] = str(tmp_path / "nothing")
            assert run(words) == 1
            shown = capsys.readouterr().err
            assert "is not refreshed" in shown
            assert "penstock refresh build" in shown
