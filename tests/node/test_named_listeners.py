"""Named listeners: addresses by listener, identities by listener, bounds by listener."""

import socket

import pytest

from penstock.core.errors import ConfigError
from penstock.core.settings.config import load_settings
from penstock.core.settings.settings_changes import changed_settings, restart_reasons
from penstock.core.settings.tree import Settings
from penstock.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker

TWO = """
[node]
storage = "memory"

[[listeners]]
name = "INSIDE"
port = 0
protocol = "PLAINTEXT"

[[listeners]]
name = "OUTSIDE"
port = 0
advertised_host = "broker.example"
advertised_port = 19092
protocol = "PLAINTEXT"
connections_max = 2
"""


def settings_from(toml_text: str) -> Settings:
    return load_settings(toml_text, {}, {"admin.enabled": False}).settings


def test_each_listener_answers_with_its_own_address() -> None:
    with Broker(settings_from(TWO)) as broker:
        ports = broker.listening_ports
        assert ports["INSIDE"] != ports["OUTSIDE"]
        own = {"INSIDE": ("127.0.0.1", ports["INSIDE"]), "OUTSIDE": ("broker.example", 19_092)}
        for name, address in own.items():
            with Asker(ports[name]) as asker:
                (known,) = asker.ask(MetadataRequest(topics=()), 9, MetadataResponse).brokers
                assert (known.host, known.port) == address
                described = asker.ask(
                    DescribeClusterRequest(include_cluster_authorized_operations=False),
                    0,
                    DescribeClusterResponse,
                )
                assert [(one.host, one.port) for one in described.brokers] == [address]
                found = asker.ask(
                    FindCoordinatorRequest(coordinator_keys=("g",)), 4, FindCoordinatorResponse
                )
                (one,) = found.coordinators
                assert (one.host, one.port) == address


def test_a_full_listener_leaves_room_at_the_others() -> None:
    with Broker(settings_from(TWO)) as broker:
        ports = broker.listening_ports
        with Asker(ports["OUTSIDE"]) as first, Asker(ports["OUTSIDE"]) as second:
            for asker in (first, second):
                asker.ask(MetadataRequest(topics=()), 9, MetadataResponse)
            with socket.create_connection(("127.0.0.1", ports["OUTSIDE"]), timeout=5) as third:
                assert third.recv(1) == b""
            with Asker(ports["INSIDE"]) as other:
                other.ask(MetadataRequest(topics=()), 9, MetadataResponse)
        assert broker.metrics()['connections_refused_total{reason="listener"}'] == 1


def test_listeners_need_a_restart() -> None:
    before = settings_from(TWO)
    after = settings_from(TWO.replace("19092", "19093"))
    (reason,) = restart_reasons(changed_settings(before, after), {})
    assert "listeners" in reason
    assert "restart" in reason


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("port = 0\nprotocol", 'port = 0\nhost = "0.0.0.0"\nprotocol'), "allow_insecure"),
        (('name = "OUTSIDE"', 'name = "INSIDE"'), "declared twice"),
        (('name = "OUTSIDE"', 'name = "outside"'), "name = 'outside'"),
        (("advertised_port = 19092", "advertised_port = 0"), "advertised_port = 0"),
        (("connections_max = 2", "connections = 2"), "nothing that a listener has"),
        (('port = 0\nprotocol = "PLAINTEXT"', 'port = 0\nprotocol = "SSL"'), "certificate"),
        (
            ('port = 0\nprotocol = "PLAINTEXT"', 'port = 0\nprotocol = "SASL_PLAINTEXT"'),
            "needs mechanisms",
        ),
        (("connections_max = 2", 'mechanisms = ["PLAIN"]'), "has no login"),
        (("connections_max = 2", 'tls = { certificate = "a", key = "b" }'), "does not use it"),
        (('[node]\nstorage = "memory"', "[listener]\nport = 1"), "both name addresses"),
        (('name = "INSIDE"\n', ""), "has no name"),
    ],
)
def test_wrong_listeners_are_refused_with_a_remedy(change: tuple[str, str], says: str) -> None:
    assert change[0] in TWO
    with pytest.raises(ConfigError) as refused:
        settings_from(TWO.replace(*change, 1))
    assert says in str(refused.value)


def test_listeners_are_an_array_of_tables() -> None:
    with pytest.raises(ConfigError, match=r"\[\[listeners\]\]"):
        load_settings("listeners = 'a'", {}, {})


def test_a_fixed_identity_stays_on_this_machine() -> None:
    fixed = TWO.replace("connections_max = 2", 'principal = "User:client"\nhost = "10.0.0.1"')
    insecure = fixed.replace("[node]", "[security]\nallow_insecure = true\n[node]")
    assert settings_from(insecure).listeners[1].principal == "User:client"
    with pytest.raises(ConfigError, match="fixed identity User:client"):
        settings_from(insecure.replace('storage = "memory"', 'storage = "disk"'))
