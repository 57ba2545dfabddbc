"""`penstock serve --workers`: what it refuses, before any worker is started."""

from pathlib import Path

import pytest

from penstock.cli.serve import _worker_words
from tests.cli.conftest import Penstock


def test_settings_that_exclude_workers(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_NODE__STORAGE", "memory")
    found = penstock("serve", "--workers", "2", "--data-dir", str(tmp_path / "data"))
    assert found.code == 2
    assert 'error: --workers is set and node.storage is "memory"' in found.errors
    assert "hint: Set node.storage" in found.errors
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("count", ["0", "65", "many"])
def test_a_number_that_is_none(penstock: Penstock, count: str) -> None:
    found = penstock("serve", "--workers", count)
    assert found.code == 2
    assert "--workers" in found.errors


def test_a_directory_of_one_broker(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "metadata.sqlite3").touch()
    found = penstock("serve", "--workers", "2", "--port", "0", "--data-dir", str(tmp_path))
    assert found.code == 2
    assert "has the data of one broker" in found.errors
    assert "start without --workers" in found.errors


def test_a_worker_is_started_by_a_supervisor_only(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (tmp_path / "file").open("rb") as file:
        found = penstock("serve", "--worker-channel", str(file.fileno()))
    assert found.code == 2
    assert "is no channel to a supervisor" in found.errors
    assert "--worker-channel" not in penstock("serve", "--help").output
    assert "--workers" in penstock("serve", "--help").output


def test_a_worker_gets_the_options_of_the_command() -> None:
    flags = {
        "listener.host": None,
        "listener.port": 9092,
        "node.data_dir": "data",
        "flush.mode": "os",
        "admin.port": None,
        "admin.enabled": False,
    }
    words = _worker_words("penstock.toml", flags, 7)
    assert words[1:] == [
        *("-m", "penstock", "serve", "--worker-channel", "7", "--config", "penstock.toml"),
        *("--port", "9092", "--data-dir", "data", "--flush", "os", "--no-admin"),
    ]
