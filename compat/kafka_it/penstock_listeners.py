"""The listeners of a test of Kafka as `[[listeners]]` of Penstock (pure).

Guarantees: a listener has the name, port and protocol of the test. Some tests have a Java class
(`principal.builder.class`) that chooses a principal by the name of the listener; `PRINCIPALS` has
the answers of these classes, and the listener gets them as its fixed `principal`. A node that
cannot be translated raises `UnsupportedNodeError`.

The controller listener is left out: a Penstock broker has none.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compat.kafka_it.launch_arguments import LaunchArguments

CONTROLLER = "CONTROLLER"
ADMINISTRATION = "BROKER"
"""Name of the listener whose clients are super users."""

PRINCIPALS: Mapping[str, Mapping[str, str]] = {
    "kafka.api.AbstractAuthorizerIntegrationTest$PrincipalBuilder": {
        "BROKER": "User:broker",
        "CLIENT": "User:client",
    },
    "org.apache.kafka.clients.security.GroupAuthorizerIntegrationTest$GroupPrincipalBuilder": {
        "BROKER": "Group:broker",
        "EXTERNAL": "Group:client",
    },
}
"""Principal by listener, for each class of Kafka's tests that chooses it so."""


class UnsupportedNodeError(Exception):
    """Penstock cannot be this node; the message says why."""


@dataclass(frozen=True)
class Listener:
    """One listener of Penstock."""

    name: str
    host: str
    port: int
    protocol: str
    principal: str | None


def listeners_of(node: LaunchArguments) -> list[Listener]:
    """Return the client listeners of the node."""
    protocols = _protocols(node)
    principals = _principals(node.settings)
    return [
        _listener(text, protocols, principals)
        for text in _addresses(node).split(",")
        if not text.startswith(f"{CONTROLLER}://")
    ]


def _addresses(node: LaunchArguments) -> str:
    """The setting `listeners` of the test; by default one for clients and one for super users."""
    if "listeners" in node.settings:
        return node.settings["listeners"]
    addresses = f"{node.listener}://127.0.0.1:{node.port}"
    is_open = node.security == "PLAINTEXT"
    if node.admin_port and is_open and "authorizer.class.name" in node.settings:
        addresses += f",{ADMINISTRATION}://127.0.0.1:{node.admin_port}"
    return addresses


def _protocols(node: LaunchArguments) -> dict[str, str]:
    given = node.settings.get("listener.security.protocol.map")
    if given is None:
        return {node.listener: node.security, ADMINISTRATION: "PLAINTEXT"}
    pairs = (entry.strip().partition(":") for entry in given.split(","))
    return {name: protocol for name, _, protocol in pairs}


def _principals(settings: Mapping[str, str]) -> Mapping[str, str]:
    builder = settings.get("principal.builder.class")
    if builder is None:
        return {}
    if builder not in PRINCIPALS:
        raise UnsupportedNodeError(
            f"principal.builder.class {builder} not known: add it to PRINCIPALS"
        )
    return PRINCIPALS[builder]


def _listener(text: str, protocols: Mapping[str, str], principals: Mapping[str, str]) -> Listener:
    name, _, address = text.strip().partition("://")
    host, _, port = address.rpartition(":")
    protocol = protocols.get(name, name)
    if protocol not in ("PLAINTEXT", "SASL_PLAINTEXT"):
        raise UnsupportedNodeError(f"listener {name} has the protocol {protocol}, which needs TLS")
    principal = principals.get(name) if protocol == "PLAINTEXT" else None
    return Listener(name, host, int(port), protocol, principal)


def listeners_text(listeners: Sequence[Listener]) -> str:
    """Return the settings file."""
    return "\n".join("\n".join(_entry(listener)) + "\n" for listener in listeners)


def _entry(listener: Listener) -> list[str]:
    lines = [
        "[[listeners]]",
        f"name = {json.dumps(listener.name)}",
        f"host = {json.dumps(listener.host)}",
        f"port = {listener.port}",
        f"protocol = {json.dumps(listener.protocol)}",
    ]
    if listener.protocol == "SASL_PLAINTEXT":
        lines.append('mechanisms = ["PLAIN"]')
    if listener.principal is not None:
        lines.append(f"principal = {json.dumps(listener.principal)}")
    return lines
