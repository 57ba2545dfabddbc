"""The files for three brokers: their settings are valid, different and fit together."""

from collections.abc import Callable

import pytest

from penstock.core.settings.tree import Settings
from tests.deploy.cluster_files import (
    NUMBERS,
    compose_services,
    compose_settings,
    kubernetes,
    kubernetes_settings,
    systemd_settings,
)

SETTINGS = [systemd_settings, compose_settings, kubernetes_settings]


@pytest.mark.parametrize("settings_of", SETTINGS)
def test_three_brokers_of_one_cluster(settings_of: Callable[[int], Settings]) -> None:
    brokers = [settings_of(number) for number in NUMBERS]
    assert len({one.node.id for one in brokers}) == 3
    assert len({(one.cluster.etcd, one.cluster.root) for one in brokers}) == 1
    for one in brokers:
        assert one.cluster.is_set
        assert one.cluster.replication_factor_default == 3
        assert one.cluster.min_insync_replicas_default == 2
    # No two have the same address, for clients and for each other.
    for addresses in (
        {
            (
                one.listener.advertised_host or one.listener.host,
                one.listener.advertised_port or one.listener.port,
            )
            for one in brokers
        },
        {
            (
                one.cluster.advertised_host or one.cluster.listen_host,
                one.cluster.advertised_port or one.cluster.listen_port,
            )
            for one in brokers
        },
    ):
        assert len(addresses) == 3


def test_each_member_of_etcd_is_named_by_the_brokers() -> None:
    services = compose_services()
    members = [name for name in services if name.startswith("etcd")]
    assert compose_settings(1).cluster.etcd == tuple(f"http://{one}:2379" for one in members)
    for name in members:
        given = services[name]["environment"]
        assert f"{name}={given['ETCD_INITIAL_ADVERTISE_PEER_URLS']}" in given[
            "ETCD_INITIAL_CLUSTER"
        ].split(",")
        assert given["ETCD_AUTO_COMPACTION_RETENTION"] == "1h"


def test_published_ports_are_the_advertised_ones() -> None:
    services = compose_services()
    for number in NUMBERS:
        listener = compose_settings(number).listener
        mapping = f"127.0.0.1:{listener.advertised_port}:{listener.port}"
        assert mapping in services[f"broker{number}"]["ports"]
        assert listener.advertised_host == "localhost"


@pytest.mark.parametrize("name", ["penstock", "penstock-etcd"])
def test_kubernetes_disturbs_one_pod_at_a_time(name: str) -> None:
    spec = kubernetes("StatefulSet", name)["spec"]
    labels = spec["selector"]["matchLabels"]
    budget = kubernetes("PodDisruptionBudget", name)["spec"]
    assert spec["replicas"] == 3
    assert budget == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    assert spec["template"]["metadata"]["labels"] == labels
    rules = spec["template"]["spec"]["affinity"]["podAntiAffinity"]
    (rule,) = rules["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["labelSelector"]["matchLabels"] == labels
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert kubernetes("Service", spec["serviceName"])["spec"]["selector"] == labels


def test_names_in_kubernetes_are_those_of_the_headless_services() -> None:
    settings = kubernetes_settings(3)
    assert settings.node.id == 2
    assert settings.listener.advertised_host == "penstock-2.penstock"
    replicas = range(kubernetes("StatefulSet", "penstock-etcd")["spec"]["replicas"])
    assert settings.cluster.etcd == tuple(
        f"http://penstock-etcd-{one}.penstock-etcd:2379" for one in replicas
    )


def test_only_brokers_reach_brokers_and_etcd() -> None:
    clients, brokers = kubernetes("NetworkPolicy", "penstock")["spec"]["ingress"]
    assert [one["port"] for one in clients["ports"]] == [9092, 8080]
    assert [one["port"] for one in brokers["ports"]] == [kubernetes_settings(1).cluster.listen_port]
    own = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "penstock"}}}
    assert brokers["from"] == [own]
    from_brokers, _ = kubernetes("NetworkPolicy", "penstock-etcd")["spec"]["ingress"]
    assert from_brokers["from"] == [own]
