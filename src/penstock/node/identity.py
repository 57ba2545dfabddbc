"""The identity of a data directory: cluster, node and directory id, as Kafka stores them.

The ids are written at the first start and compared at every later start. A directory of another
cluster or node is rejected, because serving it would mix two histories.
"""

from uuid import uuid4

from penstock.core.errors import ConfigError
from penstock.storage.disk.data_directory import (
    format_topic_id,
    read_properties,
    write_properties,
)
from penstock.storage.disk.filesystem import FileSystem


def known_cluster_id(filesystem: FileSystem, path: str) -> str | None:
    """Return the cluster id in a directory, also in one that Apache Kafka wrote."""
    return read_properties(filesystem, path).get("cluster.id")


def establish_identity(filesystem: FileSystem, path: str, *, node_id: int, cluster_id: str) -> str:
    """Compare the directory's ids with ours, writing them if it is new; return the directory id."""
    properties = read_properties(filesystem, path)
    found_cluster = properties.get("cluster.id", cluster_id)
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
        }
        write_properties(filesystem, path, properties)
    return properties["directory.id"]
