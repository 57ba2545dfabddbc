"""The cluster and its brokers over HTTP, read-only."""

from typing import Annotated, Final

from pydantic import Field

from penstock.admin.model import INT32_MAX, Answer, Input, SettingList
from penstock.admin.operation import Asked, Operation
from penstock.admin.problems import refused
from penstock.admin.setting_lists import setting_list
from penstock.client import calls
from penstock.client.cluster import Cluster

BROKER_RESOURCE: Final = 4
"""The type of a resource that has settings."""
TAG: Final = "cluster"


class BrokerPath(Input):
    """A broker in the path."""

    broker: Annotated[int, Field(ge=0, le=INT32_MAX, description="Id of a broker.")]


class Broker(Answer):
    """One broker."""

    broker: int
    host: str
    port: int
    rack: str | None
    controller: Annotated[bool, Field(description="Whether changes of topics are decided here.")]


class BrokerList(Answer):
    """Every broker by id."""

    brokers: list[Broker]


class ClusterAnswer(Answer):
    """The cluster as a whole."""

    cluster_id: str | None
    controller: int
    brokers: int
    topics: int
    partitions: int


def describe_cluster(cluster: Cluster, _asked: Asked) -> ClusterAnswer:
    """Return the cluster as a whole."""
    found = cluster.anywhere(calls.describe_brokers(None))
    return ClusterAnswer(
        cluster_id=found.cluster_id,
        controller=found.controller_id,
        brokers=len(found.brokers),
        topics=len(found.topics),
        partitions=sum(len(topic.partitions) for topic in found.topics),
    )


def list_brokers(cluster: Cluster, _asked: Asked) -> BrokerList:
    """Return every broker."""
    found = cluster.anywhere(calls.describe_brokers([]))
    return BrokerList(
        brokers=[
            Broker(
                broker=one.node_id,
                host=one.host,
                port=one.port,
                rack=one.rack,
                controller=one.node_id == found.controller_id,
            )
            for one in sorted(found.brokers, key=lambda one: one.node_id)
        ]
    )


def broker_settings(cluster: Cluster, asked: Asked) -> SettingList:
    """Return the settings of a broker, by Kafka's names."""
    broker = asked.path_as(BrokerPath).broker
    address = cluster.brokers().get(broker)
    if address is None:
        raise refused(
            404, "Not found", f"there is no broker {broker}", "GET /api/v1/brokers lists them."
        )
    call = calls.describe_settings(BROKER_RESOURCE, [str(broker)])
    return setting_list(cluster.at(address, call)[str(broker)])


OPERATIONS: Final = (
    Operation(
        "GET",
        "/cluster",
        "describeCluster",
        "Describe the cluster",
        TAG,
        describe_cluster,
        ClusterAnswer,
    ),
    Operation("GET", "/brokers", "listBrokers", "List the brokers", TAG, list_brokers, BrokerList),
    Operation(
        "GET",
        "/brokers/{broker}/settings",
        "listBrokerSettings",
        "Show the settings of a broker that Kafka has too",
        TAG,
        broker_settings,
        SettingList,
        path_model=BrokerPath,
    ),
)
"""The operations on the cluster."""
