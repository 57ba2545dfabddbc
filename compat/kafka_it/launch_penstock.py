"""Turns into one Penstock broker for the shim (see `launch_arguments`).

Guarantees: the process becomes the broker (exec), so a signal to it reaches the broker. It gets the
listeners of the test (`penstock_listeners`) in a settings file, and the settings of the test that
Penstock has, by their Kafka names; the others are left out. With `PENSTOCK_BROKER_PYTHON` the
installed package runs, as in the slow suites.

One broker without TLS: a node of another kind ends with 2 and an error message.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from compat.kafka_it.launch_arguments import LaunchArguments, read_arguments
from compat.kafka_it.penstock_listeners import UnsupportedNodeError, listeners_of, listeners_text
from penstock.security.sasl.password_file import SALT_BYTES, format_users, hash_password
from penstock.security.secret import Secret
from tests.oracle.penstock_broker import penstock_environment

UNSUPPORTED_EXIT = 2

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


def check_supported(node: LaunchArguments) -> None:
    """Raise `UnsupportedNodeError` for a node without the broker role."""
    if "broker" not in node.roles:
        raise UnsupportedNodeError(
            "node without the broker role (Penstock has no separate controller)"
        )


def settings_environment(node: LaunchArguments) -> dict[str, str]:
    """Return the settings of the test as variables of Penstock's environment."""
    defaults = SASL_DEFAULTS if node.security == "SASL_PLAINTEXT" else {}
    settings = {**defaults, **node.settings}
    same = {name: value for name, value in settings.items() if name not in DIFFERENT_VALUES}
    authorizer = "acl" if "authorizer.class.name" in settings else "none"
    return {**penstock_environment(same), "PENSTOCK_SECURITY__AUTHORIZER": authorizer}


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


def main() -> None:
    """Become the broker."""
    node = read_arguments(sys.argv[1:], os.environ)
    try:
        check_supported(node)
        listeners = listeners_of(node)
    except UnsupportedNodeError as problem:
        sys.stderr.write(f"error: {problem}\n")
        sys.exit(UNSUPPORTED_EXIT)
    node.data_dir.mkdir(parents=True, exist_ok=True)
    settings_file = node.data_dir / "penstock.toml"
    settings_file.write_text(listeners_text(listeners))
    installed = os.environ.get("PENSTOCK_BROKER_PYTHON")
    environment = {
        **os.environ,
        **settings_environment(node),
        **login_environment(node),
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
