"""The directory of a supervisor: which ones it takes, and who else is kept out."""

from pathlib import Path

import pytest

from penstock.core.errors import ConfigError, DataDirectoryLockedError
from penstock.node import identity
from penstock.node.workers import workers_directory
from penstock.node.workers.workers_directory import claim_directory
from penstock.storage.disk.filesystem import DiskFileSystem


def test_a_new_directory_is_marked(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "data")
    claim_directory(path, 2).release()
    with pytest.raises(ConfigError, match="has the data of 2 workers"):
        identity.check_alone(DiskFileSystem(), path)
    with pytest.raises(ConfigError, match="has the data of 2 workers"):
        identity.check_joining(DiskFileSystem(), path, "metadata.sqlite3")


def test_more_workers_may_come_and_none_may_go(tmp_path: Path) -> None:
    path = str(tmp_path)
    claim_directory(path, 2).release()
    claim_directory(path, 3).release()
    with pytest.raises(ConfigError, match="has the data of 3 workers: with 2") as raised:
        claim_directory(path, 2)
    assert raised.value.hint == "Start with --workers 3 or more."
    claim_directory(path, 3).release()


@pytest.mark.parametrize("name", ["metadata.sqlite3", "meta.properties"])
def test_the_data_of_one_broker_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("cluster.id=x\n")
    with pytest.raises(ConfigError, match="has the data of one broker"):
        claim_directory(str(tmp_path), 2)
    assert (tmp_path / name).read_text() == "cluster.id=x\n"


def test_two_supervisors_do_not_share_a_directory(tmp_path: Path) -> None:
    lock = claim_directory(str(tmp_path), 1)
    with pytest.raises(DataDirectoryLockedError):
        claim_directory(str(tmp_path), 1)
    lock.release()


def test_a_worker_that_is_still_there_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards a restart after kill -9 of a supervisor: its workers end by themselves."""
    (tmp_path / "worker-1").mkdir()
    held = DiskFileSystem().lock(str(tmp_path / "worker-1" / ".lock"))
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            held.release()

    monkeypatch.setattr("penstock.node.workers.workers_directory.time.sleep", sleep)
    claim_directory(str(tmp_path), 1).release()
    assert len(waits) == 3


def test_a_worker_that_stays_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "worker-2").mkdir()
    held = DiskFileSystem().lock(str(tmp_path / "worker-2" / ".lock"))
    monkeypatch.setattr(workers_directory, "STOP_SECONDS_MAX", 0.0)
    with pytest.raises(DataDirectoryLockedError, match="worker-2"):
        claim_directory(str(tmp_path), 2)
    held.release()


def test_a_workers_directory_is_not_for_others(tmp_path: Path) -> None:
    disk, path = DiskFileSystem(), str(tmp_path)
    identity.establish_identity(
        disk, path, node_id=1, cluster_id="c", is_clustered=True, store_mark=identity.SUPERVISOR
    )
    identity.check_joining(disk, path, "metadata.sqlite3", identity.SUPERVISOR)
    said = "belongs to a worker of `penstock serve --workers`"
    with pytest.raises(ConfigError, match=said):
        identity.check_alone(disk, path)
    with pytest.raises(ConfigError, match=said):
        identity.check_joining(disk, path, "metadata.sqlite3")


def test_the_directory_of_a_broker_with_etcd_is_not_for_workers(tmp_path: Path) -> None:
    disk, path = DiskFileSystem(), str(tmp_path)
    identity.establish_identity(disk, path, node_id=1, cluster_id="c", is_clustered=True)
    with pytest.raises(ConfigError, match="metadata is in etcd"):
        identity.check_joining(disk, path, "metadata.sqlite3", identity.SUPERVISOR)
