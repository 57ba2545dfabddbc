"""`penstock config`: what is wrong is said, what is right is shown with its source."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Penstock


@pytest.fixture
def good_file(tmp_path: Path) -> str:
    path = tmp_path / "penstock.toml"
    path.write_text("[listener]\nport = 9093\n\n[topic_defaults]\nauto_create = false\n")
    return str(path)


def test_check_shows_what_differs(
    penstock: Penstock, good_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_NODE__ID", "7")
    outcome = penstock("config", "check", good_file)
    assert outcome.code == 0
    lines = [line.split() for line in outcome.output.splitlines()]
    assert lines[1][:2] == ["node.id", "7"]
    assert lines[2][:2] == ["listener.port", "9093"]
    assert lines[3][:2] == ["topic_defaults.auto_create", "false"]
    assert "no problems, 3 of" in outcome.output


def test_check_as_json(penstock: Penstock, good_file: str) -> None:
    document = json.loads(penstock("config", "check", good_file, "--json").output)
    assert document["valid"] is True
    assert document["problems"] == []
    assert document["settings"][0] == {
        "key": "listener.port",
        "value": 9093,
        "source": f"{good_file} line 2",
    }


def test_check_fails_with_every_problem(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("[listener]\nprt = 1\nport = 'x'\n")
    outcome = penstock("config", "check", str(path))
    assert outcome.code == 1
    assert outcome.output == ""
    assert len(outcome.errors.splitlines()) == 2
    assert "Did you mean listener.port" in outcome.errors
    as_json = penstock("config", "check", str(path), "--json")
    assert as_json.code == 1
    document = json.loads(as_json.output)
    assert document["valid"] is False
    assert len(document["problems"]) == 2


def test_check_of_what_is_no_text(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe")
    outcome = penstock("config", "check", str(path))
    assert outcome.code == 1
    assert "is not UTF-8 text" in outcome.errors


def test_check_of_a_file_that_is_missing(penstock: Penstock) -> None:
    outcome = penstock("config", "check", "nowhere.toml")
    assert outcome.code == 2
    assert "nowhere.toml" in outcome.errors


def test_explain_one_setting(penstock: Penstock, good_file: str) -> None:
    outcome = penstock("config", "explain", "listener.port", "--config", good_file)
    assert outcome.code == 0
    assert outcome.output.startswith("listener.port = 9093\n")
    assert f"{good_file} line 2" in outcome.output
    assert "PENSTOCK_LISTENER__PORT" in outcome.output
    assert "default:      9092" in outcome.output


def test_explain_as_json(penstock: Penstock) -> None:
    document = json.loads(penstock("config", "explain", "flush.interval_ms", "--json").output)
    assert document["unit"] == "milliseconds"
    assert document["value"] == document["default"] == 1000
    assert document["source"] == "default"


def test_explain_a_section_and_everything(penstock: Penstock) -> None:
    section = penstock("config", "explain", "flush").output
    assert "flush.mode" in section
    assert "listener.port" not in section
    everything = json.loads(penstock("config", "explain", "--json").output)
    assert {"node.id", "disk.free_bytes_min"} <= {one["key"] for one in everything}


def test_explain_what_does_not_exist(penstock: Penstock) -> None:
    outcome = penstock("config", "explain", "listener.prot")
    assert outcome.code == 2
    assert "Did you mean listener.port" in outcome.errors


def test_a_wrong_environment_is_told(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_LISTENER__PORT", "many")
    outcome = penstock("config", "explain")
    assert outcome.code == 2
    assert "environment variable PENSTOCK_LISTENER__PORT" in outcome.errors
