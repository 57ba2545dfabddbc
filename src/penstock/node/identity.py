"""The identity of a data directory: cluster, node and directory id, as Kafka stores them.

The ids are written at the first start and compared at every later start. A directory of another
cluster or node is rejected, because serving it would mix two histories. A directory of a broker in
a cluster has a mark: such a broker does not start alone, and a broker that ran alone does not join
a cluster with its own metadata.
"""

from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from penstock.core.errors import ConfigError
from penstock.storage.disk.data_directory import (
    format_topic_id,
    read_properties,
    write_properties,
)
from penstock.storage.disk.filesystem import FileSystem

METADATA_FILE: Final = "metadata.sqlite3"
"""The metadata of a broker that is alone, in its data directory."""
STORE_KEY: Final = "metadata.store"
ETCD: Final = "etcd"
"""The mark of a directory whose metadata is in etcd."""
SUPERVISOR: Final = "supervisor"
"""The mark of a supervisor's directory, and of those of its workers: it has their metadata."""


def known_cluster_id(filesystem: FileSystem, path: str) -> str | None:
    """Return the cluster id in a directory, also in one that Apache Kafka wrote."""
    return read_properties(filesystem, path).get("cluster.id")


def check_alone(filesystem: FileSystem, path: str) -> None:
    """Raise an error for the directory of a broker in a cluster: its metadata is elsewhere."""
    properties = read_properties(filesystem, path)
    if properties.get(STORE_KEY) == SUPERVISOR:
        raise _of_workers(path, properties)
    if properties.get(STORE_KEY) == ETCD:
        raise ConfigError(
            f"{path} belongs to a broker of the cluster {properties.get('cluster.id')}, whose "
            "metadata is in etcd. Set cluster.etcd, or choose another data directory.",
            hint=f"To run it alone, while no other broker has replicas: `penstock cluster export "
            f"--data-dir {path} --etcd ADDRESS`.",
        )


def _of_workers(path: str, properties: Mapping[str, str]) -> ConfigError:
    count = properties.get("workers")
    if count is None:
        return ConfigError(
            f"{path} belongs to a worker of `penstock serve --workers`, whose metadata is in the "
            "directory above it. Start all workers there, or choose another data directory."
        )
    return ConfigError(
        f"{path} has the data of {count} workers. Start it with --workers {count}, or choose "
        "another data directory."
    )


def check_joining(
    filesystem: FileSystem, path: str, metadata_file: str, store_mark: str = ETCD
) -> None:
    """Raise an error for the directory of a broker that ran alone, with its own metadata.

    So is one whose metadata is in another kind of store than `store_mark`.
    """
    properties = read_properties(filesystem, path)
    if properties.get(STORE_KEY, store_mark) != store_mark:
        check_alone(filesystem, path)
    is_imported = properties.get(STORE_KEY) == ETCD
    if metadata_file in filesystem.list_directory(path) and not is_imported:
        raise ConfigError(
            f"{path} has the metadata of a broker that ran alone ({metadata_file}), and "
            "cluster.etcd is set: its topics would be unknown to the cluster. Start the broker "
            "without cluster.etcd, or choose an empty data directory.",
            hint=f"To move its topics into a new cluster: `penstock cluster import --data-dir "
            f"{path} --etcd ADDRESS`.",
        )


def check_founded(path: str, known_id: str | None, root: str) -> None:
    """Raise an error if the directory belongs to a cluster, and etcd has none below `root`."""
    if known_id is not None:
        raise ConfigError(
            f"{path} belongs to the cluster {known_id}, and etcd has no cluster below {root}. "
            "Check cluster.etcd and cluster.name; if etcd was lost, restore its backup. A new "
            "cluster needs an empty data directory."
        )


def establish_identity(
    filesystem: FileSystem,
    path: str,
    *,
    node_id: int,
    cluster_id: str,
    is_clustered: bool = False,
    store_mark: str = ETCD,
) -> str:
    """Compare the directory's ids with ours, writing them if it is new; return the directory id."""
    properties = read_properties(filesystem, path)
    found_cluster = properties.get("cluster.id", cluster_id)
    if found_cluster != cluster_id and is_clustered:
        raise ConfigError(
            f"{path} belongs to the cluster {found_cluster}, and etcd has the cluster {cluster_id}."
            " Check cluster.etcd, cluster.name and node.data_dir."
        )
    if found_cluster != cluster_id:
        raise ConfigError(
            f"{path} belongs to the cluster {found_cluster}, the metadata in it to {cluster_id}: "
            "they were copied together from two brokers. Restore both from one backup."
        )
    found_node = properties.get("node.id", properties.get("broker.id", str(node_id)))
    if found_node != str(node_id):
        raise ConfigError(
            f"{path} was written by node {found_node}, this is node {node_id}. Set node.id to "
            f"{found_node}, or give this broker a data directory of its own."
        )
    if "directory.id" not in properties:
        properties = {
            "version": "1",
            "cluster.id": cluster_id,
            "node.id": str(node_id),
            "directory.id": format_topic_id(uuid4()),
            **({STORE_KEY: store_mark} if is_clustered else {}),
        }
        write_properties(filesystem, path, properties)
    return properties["directory.id"]
