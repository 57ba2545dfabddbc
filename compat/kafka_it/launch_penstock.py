"""Turns into one node of Penstock for the shim (see `launch_arguments`): a broker, or etcd.

Guarantees: the process becomes the node (exec), so a signal to it reaches the node. A test with one
broker gets a broker alone, with its metadata in its data directory. In a test with several, the
separate controller of the shim is one member of etcd (Debian's), at the port of the controller, and
the brokers are a cluster in it.

A broker gets the listeners of the test (`penstock_listeners`) in a settings file, and the settings
of the test that Penstock has, by their Kafka names; the others are written to its log. Each broker
of Penstock does the work of a controller: it gets the settings of the test for the controller too.
With `PENSTOCK_BROKER_PYTHON` the installed package runs, as in the slow suites.

Clients without TLS only: a node of another kind ends with 2 and an error message.
"""

import contextlib
import dataclasses
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Never

from compat.kafka_it.launch_arguments import LaunchArguments, read_arguments, read_properties
from compat.kafka_it.penstock_listeners import UnsupportedNodeError, listeners_of, listeners_text
from penstock.core.settings.config import describe_settings
from penstock.security.sasl.password_file import SALT_BYTES, format_users, hash_password
from penstock.security.secret import Secret
from tests.oracle.cache import tool
from tests.oracle.penstock_broker import penstock_environment

UNSUPPORTED_EXIT = 2
ETCD_START_SECONDS = 30.0
POLL_SECONDS = 0.02

USERS = ("plain-admin", "plain-user1")
"""The users of Kafka's own test kit (JaasUtils); a password is the name and `-secret`."""

SASL_DEFAULTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "false",
    "super.users": "User:plain-admin",
}
"""Settings that Kafka's own test kit adds to a cluster with SASL, unless the test has its own."""

DIFFERENT_VALUES = frozenset(
    {
        "listeners",
        "advertised.listeners",
        "log.dirs",
        "node.id",
        "authorizer.class.name",
        "log.flush.interval.messages",
        "connections.max.idle.ms",
    }
)
"""Settings that Penstock has with values of another form or unit."""

IN_SECONDS = {
    "broker.session.timeout.ms": ("PENSTOCK_CLUSTER__SESSION_SECONDS", 3.0),
    "replica.lag.time.max.ms": ("PENSTOCK_CLUSTER__REPLICA_LAG_SECONDS_MAX", 1.0),
}
"""Settings in milliseconds that Penstock has in seconds: its variable and its least value."""


def with_controller_settings(node: LaunchArguments, path: Path) -> LaunchArguments:
    """Add the settings of the separate controller, from its file, where the broker has none."""
    settings = {**read_properties(path), **node.settings}
    return dataclasses.replace(node, settings=settings)


NO_SHARE_GROUPS = "share.version=0"
"""The feature level of a test without share groups; in Penstock they are a setting."""


def settings_environment(node: LaunchArguments) -> dict[str, str]:
    """Return the settings of the test as variables of Penstock's environment."""
    defaults = SASL_DEFAULTS if node.security == "SASL_PLAINTEXT" else {}
    settings = {**defaults, **node.settings}
    other = DIFFERENT_VALUES | set(IN_SECONDS)
    same = {name: value for name, value in settings.items() if name not in other}
    seconds = {
        variable: str(max(int(settings[name]) / 1000, least))
        for name, (variable, least) in IN_SECONDS.items()
        if name in settings
    }
    authorizer = "acl" if "authorizer.class.name" in settings else "none"
    has_shares = NO_SHARE_GROUPS not in node.features.split(",")
    return {
        **penstock_environment(same),
        **seconds,
        "PENSTOCK_SECURITY__AUTHORIZER": authorizer,
        "PENSTOCK_GROUPS__SHARE_ENABLED": str(has_shares).lower(),
    }


def unknown_settings(settings: Mapping[str, str]) -> list[str]:
    """Return `name=value` of the settings of the test that Penstock does not have."""
    known = {info.kafka_name for info in describe_settings()} | DIFFERENT_VALUES
    return sorted(f"{name}={value}" for name, value in settings.items() if name not in known)


def write_users(path: Path) -> None:
    """Write the users of the test kit with hashed passwords."""
    salt = bytes(SALT_BYTES)
    path.write_text(
        format_users({user: hash_password(Secret(f"{user}-secret"), salt) for user in USERS})
    )


def login_environment(node: LaunchArguments) -> Mapping[str, str]:
    """Return the variables for SASL PLAIN; empty for another protocol."""
    if node.security != "SASL_PLAINTEXT":
        return {}
    users = node.data_dir / "users"
    write_users(users)
    return {
        "PENSTOCK_SECURITY__PLAIN_VERIFIER": "file",
        "PENSTOCK_SECURITY__USERS_FILE": str(users),
    }


def etcd_address(node: LaunchArguments) -> tuple[str, int]:
    """Return host and port of etcd's clients: the address of the separate controller."""
    host, _, port = node.controller.partition("@")[2].rpartition(":")
    return host, int(port)


def become_etcd(node: LaunchArguments) -> Never:
    """Become the only member of etcd; its peers have no use, so their port is any."""
    host, port = etcd_address(node)
    clients, peers = f"http://{host}:{port}", f"http://{host}:0"
    etcd = tool("etcd", "install Debian's package etcd-server")
    command = [
        etcd,
        *("--name", "n0", "--data-dir", str(node.data_dir / "etcd")),
        *("--listen-client-urls", clients, "--advertise-client-urls", clients),
        *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
        *("--initial-cluster", f"n0={peers}", "--logger", "zap", "--log-level", "error"),
        "--unsafe-no-fsync",
    ]
    os.execv(etcd, command)


def wait_for_etcd(address: tuple[str, int]) -> None:
    """Return when etcd listens, or after `ETCD_START_SECONDS`: the broker reports the failure."""
    deadline = time.monotonic() + ETCD_START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=1):
            return
        time.sleep(POLL_SECONDS)


def cluster_environment(node: LaunchArguments) -> Mapping[str, str]:
    """Return the variables of a broker in a cluster; empty for a broker alone."""
    if "controller" in node.roles:
        return {}
    host, port = etcd_address(node)
    return {
        "PENSTOCK_CLUSTER__ETCD": f"http://{host}:{port}",
        "PENSTOCK_CLUSTER__LISTEN_PORT": "0",
    }


def main() -> None:
    """Become the node."""
    node = read_arguments(sys.argv[1:], os.environ)
    node.data_dir.mkdir(parents=True, exist_ok=True)
    if "broker" not in node.roles:
        become_etcd(node)
    if "controller" not in node.roles:
        name = f"server-{node.controller_id}.properties"
        node = with_controller_settings(node, Path(sys.argv[1]).with_name(name))
    try:
        listeners = listeners_of(node)
    except UnsupportedNodeError as problem:
        sys.stderr.write(f"error: {problem}\n")
        sys.exit(UNSUPPORTED_EXIT)
    unknown = unknown_settings(node.settings)
    if unknown:
        sys.stderr.write(f"settings left out: {', '.join(unknown)}\n")
    settings_file = node.data_dir / "penstock.toml"
    settings_file.write_text(listeners_text(listeners))
    installed = os.environ.get("PENSTOCK_BROKER_PYTHON")
    cluster = cluster_environment(node)
    if cluster:
        wait_for_etcd(etcd_address(node))
    environment = {
        **os.environ,
        **settings_environment(node),
        **login_environment(node),
        **cluster,
        "PENSTOCK_ADMIN__ENABLED": "false",
        "PENSTOCK_NODE__ID": str(node.node_id),
    }
    if installed:
        # A source tree on the path would hide the installed package.
        environment["PYTHONPATH"] = ""
    python = installed or sys.executable
    folder = ["--data-dir", str(node.data_dir / "data")]
    command = [python, "-m", "penstock", "serve", "--config", str(settings_file), *folder]
    os.execve(python, command, environment)


if __name__ == "__main__":
    main()
