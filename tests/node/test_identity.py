"""Whose directory it is: another node's or another cluster's is refused, with a remedy."""

from pathlib import Path

import pytest

from penstock.core.errors import ConfigError
from penstock.node.identity import (
    check_alone,
    check_founded,
    check_joining,
    establish_identity,
    known_cluster_id,
)
from penstock.storage.disk.data_directory import read_properties, write_properties
from penstock.testing.memory_disk import MemoryDisk
from tests.node.data import broker_on, fill, records

PATH = "/data"


@pytest.fixture
def disk() -> MemoryDisk:
    made = MemoryDisk()
    made.make_directory(PATH)
    return made


def test_a_new_directory_gets_an_identity_that_stays(disk: MemoryDisk) -> None:
    assert known_cluster_id(disk, PATH) is None
    directory_id = establish_identity(disk, PATH, node_id=3, cluster_id="cluster")
    assert read_properties(disk, PATH) == {
        "version": "1",
        "cluster.id": "cluster",
        "node.id": "3",
        "directory.id": directory_id,
    }
    assert known_cluster_id(disk, PATH) == "cluster"
    assert establish_identity(disk, PATH, node_id=3, cluster_id="cluster") == directory_id


def test_a_directory_of_an_older_kafka_is_taken_over(disk: MemoryDisk) -> None:
    write_properties(disk, PATH, {"version": "0", "cluster.id": "cluster", "broker.id": "3"})
    establish_identity(disk, PATH, node_id=3, cluster_id="cluster")
    assert read_properties(disk, PATH)["node.id"] == "3"


@pytest.mark.parametrize("key", ["node.id", "broker.id"])
def test_another_nodes_directory_is_refused(disk: MemoryDisk, key: str) -> None:
    write_properties(disk, PATH, {"version": "1", "cluster.id": "cluster", key: "7"})
    with pytest.raises(ConfigError, match=r"node 7, this is node 3\. Set node\.id to 7"):
        establish_identity(disk, PATH, node_id=3, cluster_id="cluster")


def test_another_clusters_directory_is_refused(disk: MemoryDisk) -> None:
    write_properties(disk, PATH, {"version": "1", "cluster.id": "theirs", "node.id": "3"})
    with pytest.raises(ConfigError, match=r"theirs.*Restore both from one backup"):
        establish_identity(disk, PATH, node_id=3, cluster_id="ours")


def test_a_broker_does_not_start_under_another_number(tmp_path: Path) -> None:
    with broker_on(tmp_path) as asker:
        fill(asker, b"mine")
    with pytest.raises(ConfigError, match=r"Set node\.id to 1"), broker_on(tmp_path, node_id=2):
        pass
    with broker_on(tmp_path) as asker:
        assert records(asker) == [b"mine"]


def test_a_broker_does_not_start_on_halves_of_two(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        with broker_on(path):
            pass
    (second / "meta.properties").write_bytes((first / "meta.properties").read_bytes())
    with pytest.raises(ConfigError, match="two brokers"), broker_on(second):
        pass


def test_the_directory_of_a_cluster_does_not_start_alone(disk: MemoryDisk) -> None:
    check_alone(disk, PATH)
    establish_identity(disk, PATH, node_id=3, cluster_id="ours", is_clustered=True)
    with pytest.raises(ConfigError, match=r"of the cluster ours.*Set cluster\.etcd"):
        check_alone(disk, PATH)
    # The mark stays when the broker starts again.
    establish_identity(disk, PATH, node_id=3, cluster_id="ours", is_clustered=True)
    assert read_properties(disk, PATH)["metadata.store"] == "etcd"


def test_a_broker_that_ran_alone_does_not_join_a_cluster(disk: MemoryDisk) -> None:
    check_joining(disk, PATH, "metadata.sqlite3")
    disk.create_file(f"{PATH}/metadata.sqlite3").close()
    with pytest.raises(ConfigError, match=r"ran alone \(metadata\.sqlite3\)") as error:
        check_joining(disk, PATH, "metadata.sqlite3")
    assert f"penstock cluster import --data-dir {PATH}" in error.value.hint


def test_another_etcd_is_refused(disk: MemoryDisk) -> None:
    establish_identity(disk, PATH, node_id=3, cluster_id="ours", is_clustered=True)
    with pytest.raises(ConfigError, match=r"etcd has the cluster theirs"):
        establish_identity(disk, PATH, node_id=3, cluster_id="theirs", is_clustered=True)
    with pytest.raises(ConfigError, match=r"no cluster below /penstock/a/.*restore its backup"):
        check_founded(PATH, known_cluster_id(disk, PATH), "/penstock/a/")
    check_founded(PATH, None, "/penstock/a/")
