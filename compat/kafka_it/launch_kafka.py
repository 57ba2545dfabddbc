"""Turns into one Apache Kafka node for the shim (see `launch_arguments`).

Guarantees: the process becomes the broker (exec), so a signal to it reaches the broker. Storage is
formatted once for each set of features and copied from the cache, because formatting costs a second
of Java for each broker.

It serves PLAINTEXT and SASL_PLAINTEXT (mechanism PLAIN), NOT TLS.
"""

import base64
import os
import shutil
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

from compat.kafka_it.console import prepared
from compat.kafka_it.launch_arguments import LaunchArguments, read_arguments, read_properties
from tests.oracle.cache import built, content_key
from tests.oracle.kafka_jars import KAFKA_VERSION, java_command, run_kafka_tool

HOST = "127.0.0.1"
CLUSTER_ID = "AoiVrXEJTO24QuSBQbC-Rw"

TEMPLATE = {
    "process.roles": "broker,controller",
    "node.id": "0",
    "controller.quorum.voters": f"0@{HOST}:1",
    "listeners": f"PLAINTEXT://{HOST}:2,CONTROLLER://{HOST}:1",
    "controller.listener.names": "CONTROLLER",
    "unstable.feature.versions.enable": "true",
}
"""Settings that storage is formatted with; node and directory ids are changed in the copy."""

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="plain-admin" password="plain-admin-secret" '
    'user_plain-admin="plain-admin-secret" user_plain-user1="plain-user1-secret";'
)
"""The users of Kafka's own test kit (JaasUtils)."""


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a properties file; no value has a line break."""
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def listener_settings(node: LaunchArguments) -> dict[str, str]:
    """Listeners of the node, unless the test sets its own."""
    own = []
    if "broker" in node.roles:
        own.append(f"{node.listener}://{HOST}:{node.port}")
        if node.admin_port and "authorizer.class.name" in node.settings:
            own.append(f"BROKER://{HOST}:{node.admin_port}")
    of_controller = f"CONTROLLER://{node.controller.partition('@')[2]}"
    if "controller" in node.roles:
        own.append(of_controller)
    listeners = node.settings.get("listeners", ",".join(own))
    if "controller" in node.roles and "CONTROLLER://" not in listeners:
        listeners += f",{of_controller}"
    protocols = node.settings.get(
        "listener.security.protocol.map", f"{node.listener}:{node.security},BROKER:PLAINTEXT"
    )
    if "CONTROLLER:" not in protocols:
        protocols += f",CONTROLLER:{node.security}"
    result = {"listeners": listeners, "listener.security.protocol.map": protocols}
    if "broker" in node.roles and "inter.broker.listener.name" not in node.settings:
        result["inter.broker.listener.name"] = node.listener
    return result


def sasl_settings(node: LaunchArguments) -> dict[str, str]:
    """SASL PLAIN with a super user and an authorizer; empty for another protocol."""
    if node.security != "SASL_PLAINTEXT":
        return {}
    required = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        f"listener.name.{node.listener.lower()}.plain.sasl.jaas.config": JAAS,
        "listener.name.controller.plain.sasl.jaas.config": JAAS,
    }
    defaults = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": "User:plain-admin",
    }
    return required | {name: node.settings.get(name, value) for name, value in defaults.items()}


def server_settings(node: LaunchArguments) -> dict[str, str]:
    """All settings of the node."""
    settings = {
        **node.settings,
        **listener_settings(node),
        **sasl_settings(node),
        "process.roles": ",".join(sorted(node.roles)),
        "node.id": str(node.node_id),
        "controller.quorum.voters": node.controller,
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(node.data_dir / "log"),
        # Kafka's own test kit enables unstable versions: its default is the latest of them.
        "unstable.feature.versions.enable": "true",
    }
    settings.setdefault("unstable.api.versions.enable", "true")
    # An older name of node.id: with another value Kafka refuses to start.
    settings.pop("broker.id", None)
    if "broker" not in node.roles:
        settings.pop("broker.rack", None)
    return settings


def formatted_storage(features: str) -> Path:
    """A storage folder formatted with these features, from the cache."""

    def build(folder: Path) -> None:
        settings = folder / "server.properties"
        write_properties(settings, TEMPLATE | {"log.dirs": str(folder / "data")})
        words = [word for each in features.split(",") if each for word in ("--feature", each)]
        command = ["format", "-t", CLUSTER_ID, "-c", str(settings), *words]
        run_kafka_tool("kafka.tools.StorageTool", command)

    key = content_key(CLUSTER_ID, features, *TEMPLATE.values())
    return built(f"kafka-{KAFKA_VERSION}/launch-{key}", build) / "data"


def prepare_storage(node: LaunchArguments) -> None:
    """Copy formatted storage into an empty data folder; keep it after a restart."""
    log = node.data_dir / "log"
    meta = log / "meta.properties"
    if meta.exists():
        return
    node.data_dir.mkdir(parents=True, exist_ok=True)
    shutil.copytree(formatted_storage(node.features), log)
    directory_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    own = {"node.id": str(node.node_id), "directory.id": directory_id}
    write_properties(meta, read_properties(meta) | own)


def test_jars(node: LaunchArguments) -> Path | None:
    """Return the jars of Kafka's tests for a test with a principal builder of its own."""
    return prepared() / "lib" / "*" if "principal.builder.class" in node.settings else None


def main() -> None:
    """Become the broker."""
    node = read_arguments(sys.argv[1:], os.environ)
    prepare_storage(node)
    settings = node.data_dir / "server.properties"
    write_properties(settings, server_settings(node))
    command = java_command("kafka.Kafka", [settings], appended_to_class_path=test_jars(node))
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
