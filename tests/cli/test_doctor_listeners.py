"""Listeners in `penstock doctor`: plain, with TLS and with a login, on real sockets."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.doctor.facts import PortFacts
from penstock.cli.doctor.listener_probe import (
    advertised_address,
    local_address,
    probe_listener,
)
from penstock.core.settings.config import load_settings
from penstock.core.settings.listener_declarations import NamedListener
from penstock.core.settings.tree import Settings
from penstock.security.secret import Secret
from penstock.testing import Broker
from tests.cli.conftest import Penstock
from tests.cli.tls_proxy import TlsProxy
from tests.oracle.certificates import CertificateAuthority, Identity, Validity

TIMEOUT_SECONDS = 10.0
PASSWORD = "adminsecret"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def identity(authority: CertificateAuthority) -> Identity:
    found = authority.server(validity=Validity(-1, 90))
    found.key.chmod(0o600)
    return found


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def tls_listener(port: int, identity: Identity, **more: object) -> NamedListener:
    tls = {"certificate": str(identity.chain), "key": str(identity.key), **more}
    return NamedListener.model_validate(
        {"name": "SECURE", "port": port, "protocol": "SSL", "tls": tls}
    )


def seen(listener: NamedListener) -> PortFacts:
    return probe_listener(listener, TIMEOUT_SECONDS, is_declared=True)


def test_a_tls_listener_is_probed_with_tls(broker: Broker, identity: Identity) -> None:
    with TlsProxy(identity.chain, identity.key, broker.port) as proxy:
        facts = seen(tls_listener(proxy.port, identity))
    assert facts.answers_as_broker
    assert not facts.serves_other_certificate
    assert (facts.listener, facts.protocol, facts.is_taken) == ("SECURE", "SSL", True)


def test_a_listener_that_requires_a_certificate(
    broker: Broker, authority: CertificateAuthority, identity: Identity
) -> None:
    ca = authority.certificate
    listener = {"client_ca": str(ca), "client_auth": "required"}
    with TlsProxy(identity.chain, identity.key, broker.port, ca) as proxy:
        facts = seen(tls_listener(proxy.port, identity, **listener))
    assert facts.needs_client_certificate
    assert not facts.answers_as_broker


def test_a_broker_with_an_old_certificate(
    broker: Broker, authority: CertificateAuthority, identity: Identity
) -> None:
    renewed = authority.server(validity=Validity(-1, 200))
    with TlsProxy(identity.chain, identity.key, broker.port) as proxy:
        facts = seen(tls_listener(proxy.port, renewed))
    assert facts.answers_as_broker
    assert facts.serves_other_certificate


def test_a_broker_without_tls_at_the_port_of_a_tls_listener(
    broker: Broker, identity: Identity
) -> None:
    facts = seen(tls_listener(broker.port, identity))
    assert not facts.answers_as_broker
    assert "TLS handshake" in facts.speak_problem


def test_a_tls_listener_that_does_not_run(identity: Identity) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    facts = seen(tls_listener(port, identity))
    assert (facts.is_taken, facts.problem, facts.speak_problem) == (False, "", "")


def test_addresses_of_a_listener() -> None:
    listener = NamedListener(name="A", host="0.0.0.0", port=9093, protocol="PLAINTEXT")
    assert str(local_address(listener)) == "localhost:9093"
    assert str(advertised_address(listener)) == "localhost:9093"
    changes = {"advertised_host": "broker.example", "advertised_port": 443}
    assert str(advertised_address(listener.model_copy(update=changes))) == "broker.example:443"


def test_a_client_with_tls_follows_the_advertised_address(
    penstock: Penstock,
    broker: Broker,
    authority: CertificateAuthority,
    identity: Identity,
    tmp_path: Path,
) -> None:
    client = tmp_path / "client.properties"
    client.write_text(f"security.protocol=SSL\nssl.ca.location={authority.certificate}\n")
    with TlsProxy(identity.chain, identity.key, broker.port) as proxy:
        config = tmp_path / "penstock.toml"
        config.write_text(
            f"""
            [node]
            storage = "memory"
            [[listeners]]
            name = "SECURE"
            port = {proxy.port}
            advertised_host = "localhost"
            protocol = "SSL"
            tls = {{ certificate = "{identity.chain}", key = "{identity.key}" }}
            """
        )
        words = ("doctor", "--config", str(config), "--json")
        alone = checks(penstock(*words).output)
        done = checks(penstock(*words, "--command-config", str(client)).output)
    assert [one["level"] for one in alone["port"]] == ["fine"]
    assert "bootstrap" not in alone
    # The test's authority is not one of the system, and only the client's settings name it.
    assert [one["level"] for one in alone["certificate"]] == ["finding"]
    assert [one["level"] for one in done["certificate"]] == ["fine"]
    assert f"localhost:{proxy.port} answers as a broker" in done["bootstrap"][0]["words"]


# --- A broker with logins and access rules ---

SECURED = """
[node]
storage = "memory"
[security]
authorizer = "acl"
super_users = "User:admin;User:lost"
bootstrap_admin_file = "{folder}/admin.txt"
acl_file = "{folder}/rules.json"
[[listeners]]
name = "OPEN"
port = {open}
protocol = "PLAINTEXT"
[[listeners]]
name = "CLIENTS"
port = {clients}
protocol = "SASL_PLAINTEXT"
mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
"""
RULES = {
    "rules": [
        {"principal": "User:*", "operation": "Describe", "resource": "Cluster:kafka-cluster"},
        {"principal": "User:bob", "operation": "Read", "resource": "Topic:gone"},
        {"principal": "User:bob", "operation": "Read", "resource": "Group:gone"},
        {"principal": "User:eve", "operation": "All", "resource": "Topic:*", "allow": False},
    ]
}


def checks(output: str) -> dict[str, list[dict[str, Any]]]:
    """The judgements of a report, by check."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in json.loads(output)["checks"]:
        found.setdefault(one["check"], []).append(one)
    return found


class Scene:
    """A broker with a login, its settings file, and the settings of its clients."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        administrator = folder / "admin.txt"
        administrator.write_text(f"admin:{PASSWORD}\n")
        administrator.chmod(0o600)
        (folder / "rules.json").write_text(json.dumps(RULES))
        self.broker = Broker(self._settings(0, 0))

    def _settings(self, clients: int, open_: int) -> Settings:
        text = SECURED.format(folder=self._folder, clients=clients, open=open_)
        (self._folder / "penstock.toml").write_text(text)
        return load_settings(text, {}, {"admin.enabled": False}).settings

    def config(self) -> str:
        """Write the settings file with the ports of the running broker."""
        ports = self.broker.listening_ports
        self._settings(ports["CLIENTS"], ports["OPEN"])
        return str(self._folder / "penstock.toml")

    def client(self, password: Secret) -> str:
        """Write the settings of a client."""
        path = self._folder / "client.properties"
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            f"sasl.username=admin\nsasl.password={password.reveal()}\n"
        )
        return str(path)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    found = Scene(tmp_path_factory.mktemp("secured"))
    with found.broker:
        yield found


def test_each_listener_is_examined(penstock: Penstock, scene: Scene) -> None:
    done = penstock("doctor", "--config", scene.config(), "--json")
    assert done.code == 1
    found = checks(done.output)
    ports = scene.broker.listening_ports
    assert {one["level"] for one in found["port"]} == {"fine"}
    assert [one["words"] for one in found["port"]] == [
        f"a broker answers at 127.0.0.1:{ports['OPEN']} (listener OPEN)",
        f"a broker answers at 127.0.0.1:{ports['CLIENTS']} (listener CLIENTS) with SASL_PLAINTEXT",
    ]
    assert [one["words"].partition(": ")[2] for one in found["rules"]] == ["4 rules"]
    # Without a login, only clients of the open listener are examined.
    assert [str(ports["OPEN"]) in one["words"] for one in found["bootstrap"]] == [True]
    # These see the rules, and no topic: a hidden topic is not a missing one.
    notes = [one["words"] for one in found["acl"] if one["level"] == "note"]
    assert not any("Topic:gone" in words for words in notes)
    assert "rules for topics were not compared: the caller may not see all topics" in notes


def test_an_administrator_sees_rules_and_users(penstock: Penstock, scene: Scene) -> None:
    client = scene.client(Secret(PASSWORD))
    done = penstock("doctor", "--config", scene.config(), "--command-config", client, "--json")
    found = checks(done.output)
    assert len(found["bootstrap"]) == 2
    assert {one["level"] for one in found["bootstrap"]} == {"fine"}
    (finding,) = [one for one in found["acl"] if one["level"] == "finding"]
    assert "allow Describe on Cluster:kafka-cluster for User:*" in finding["words"]
    assert finding["remedy"].startswith("Delete the rule from ")
    notes = [one["words"] for one in found["acl"] if one["level"] == "note"]
    assert [words.partition(": ")[0] for words in notes] == [
        "allow Read on Topic:gone for User:bob from any host",
        "allow Read on Group:gone for User:bob from any host",
    ]
    administrator, lost = found["users"]
    assert administrator["level"] == "fine"
    assert lost["level"] == "note"
    assert "super user User:lost has no SCRAM credential" in lost["words"]
    assert PASSWORD not in done.output + done.errors


def test_the_address_of_a_client_does_not_hide_this_machine(
    penstock: Penstock, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Path(scene.client(Secret(PASSWORD)))
    port = scene.broker.listening_ports["CLIENTS"]
    client.write_text(f"{client.read_text()}\nbootstrap.servers=127.0.0.1:{port}\n")
    monkeypatch.setenv("PENSTOCK_COMMAND_CONFIG", str(client))
    assert len(checks(penstock("doctor", "--config", scene.config(), "--json").output)["port"]) == 2
    # Settings of the environment are for each command; the file of the client decides here.
    monkeypatch.setenv("PENSTOCK_CONFIG", scene.config())
    assert "port" not in checks(penstock("doctor", "--json").output)


def test_a_remote_cluster_has_commands_as_remedies(penstock: Penstock, scene: Scene) -> None:
    address = f"127.0.0.1:{scene.broker.listening_ports['CLIENTS']}"
    client = scene.client(Secret(PASSWORD))
    done = penstock("doctor", "--bootstrap", address, "--command-config", client, "--json")
    found = checks(done.output)
    assert "users" not in found
    assert "port" not in found
    (finding,) = [one for one in found["acl"] if one["level"] == "finding"]
    assert finding["remedy"] == (
        "`penstock acl remove --principal 'User:*' --operation Describe --resource "
        f"Cluster:kafka-cluster --host '*' --permission allow --bootstrap-server {address}`"
    )


def test_a_wrong_password_is_a_finding(penstock: Penstock, scene: Scene) -> None:
    client = scene.client(Secret("wrong"))
    done = penstock("doctor", "--config", scene.config(), "--command-config", client, "--json")
    found = checks(done.output)["bootstrap"]
    assert [one["level"] for one in found] == ["fine", "finding"]
    assert "is a broker that this client cannot use" in found[1]["words"]
    assert "refused the login with SCRAM-SHA-512" in found[1]["words"]
    assert "wrong" not in done.output


def test_a_caller_without_rights_gets_notes(penstock: Penstock, tmp_path: Path) -> None:
    text = '[node]\nstorage = "memory"\n[listener]\nport = 0\n[security]\nauthorizer = "acl"\n'
    settings = load_settings(text + 'super_users = "User:admin"\n', {}, {}).settings
    with Broker(settings) as running:
        done = penstock("doctor", "--bootstrap", running.bootstrap_server, "--json")
    (note,) = checks(done.output)["acl"]
    assert note["level"] == "note"
    assert "CLUSTER_AUTHORIZATION_FAILED" in note["words"]
    assert "--command-config" in note["words"]


def test_settings_of_a_client_for_another_protocol(
    penstock: Penstock, scene: Scene, tmp_path: Path
) -> None:
    client = tmp_path / "client.properties"
    client.write_text("security.protocol=SSL\n")
    words = ("--config", scene.config(), "--command-config", str(client), "--json")
    (note,) = checks(penstock("doctor", *words).output)["listener"]
    assert note["level"] == "note"
    assert "security.protocol is SSL" in note["words"]
