"""`penstock cluster import` and `export` on a data directory, with a store in memory as etcd."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from penstock.cli import exits
from penstock.core.clock import Clock
from penstock.core.settings.tree import Settings
from penstock.testing.memory_store import MemoryMetadataStore
from tests.cli.conftest import Penstock
from tests.node.transfer.transfer_scene import CLUSTER_ID, Directory


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return asyncio.run(Directory(tmp_path / "data").fill())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Replace etcd by one store; return the settings of each connection to it."""
    store = MemoryMetadataStore()
    found: list[Settings] = []

    async def opened(
        settings: Settings, _clock: Clock, _stack: AsyncExitStack
    ) -> MemoryMetadataStore:
        found.append(settings)
        return store

    monkeypatch.setattr("penstock.cli.cluster.transfer_options.open_cluster_store", opened)
    return found


def test_there_and_back(penstock: Penstock, directory: Directory, asked: list[Settings]) -> None:
    where = ("--data-dir", directory.path, "--etcd", "http://a:1", "--etcd", "http://b:2")
    checked = penstock("cluster", "import", *where, "--check")
    assert checked.code == exits.DONE
    assert checked.output.splitlines()[1].split() == ["topics", "3"]
    assert checked.output.endswith(
        "broker 1 can be imported below /penstock/default/; nothing was changed\n"
    )
    assert asked[-1].cluster.etcd == ("http://a:1", "http://b:2")
    done = penstock("cluster", "import", *where)
    assert done.output.endswith(
        "imported below /penstock/default/: start broker 1 with cluster.etcd now\n"
    )
    again = penstock("cluster", "import", *where)
    assert again.output == (
        "imported before: the metadata of broker 1 is in etcd, below /penstock/default/\n"
    )
    checked = penstock("cluster", "export", *where, "--check", "--json")
    assert json.loads(checked.output) == {
        "cluster_id": CLUSTER_ID,
        "broker": 1,
        "root": "/penstock/default/",
        "checked_only": True,
        "moved": {
            "topics": 3,
            "partitions": 232,
            "users": 1,
            "access rules": 1,
            "quotas": 1,
            "settings of groups": 1,
            "settings of brokers": 2,
        },
        "warnings": [],
    }
    done = penstock("cluster", "export", *where)
    assert done.output.endswith("exported: start broker 1 without cluster.etcd now\n")
    again = penstock("cluster", "export", *where)
    assert again.output == "broker 1 is alone: its metadata is in its data directory\n"


def test_a_settings_file_names_everything(
    penstock: Penstock, directory: Directory, asked: list[Settings], tmp_path: Path
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(
        f'[node]\ndata_dir = "{directory.path}"\n[cluster]\netcd = ["http://a:1"]\nname = "x"\n'
    )
    done = penstock("cluster", "import", "--config", str(file))
    assert done.code == exits.DONE, done
    assert "below /penstock/x/" in done.output
    assert asked[-1].cluster.name == "x"


def test_refusals(penstock: Penstock, directory: Directory, asked: list[Settings]) -> None:
    nowhere = penstock("cluster", "import", "--data-dir", directory.path)
    assert nowhere.code == exits.USAGE
    assert "There is no address of etcd" in nowhere.errors
    assert not asked
    directory.remove(".kafka_cleanshutdown")
    where = ("--data-dir", directory.path, "--etcd", "http://a:1")
    refused = penstock("cluster", "import", *where)
    assert refused.code == exits.FAILED
    assert "was not clean" in refused.errors
    assert "hint: Start it alone" in refused.errors
    missing = penstock("cluster", "export", "--data-dir", "/nowhere", "--etcd", "http://a:1")
    assert missing.code == exits.FAILED
    assert "there is no data directory /nowhere" in missing.errors


def test_warnings(penstock: Penstock, directory: Directory, asked: list[Settings]) -> None:
    asyncio.run(
        directory.put(
            {"/penstock/default/configs/topic/orders": _settings({"min.insync.replicas": "2"})}
        )
    )
    done = penstock(
        "cluster", "import", "--data-dir", directory.path, "--etcd", "http://a:1", "--check"
    )
    assert "warning: min.insync.replicas is above 1 for orders" in done.errors
    assert len(asked) == 1


def _settings(values: dict[str, str]) -> bytes:
    return json.dumps({"v": 1, "settings": values}).encode()
