"""Turns into one Penstock broker for the shim (see `launch_arguments`).

Guarantees: the process becomes the broker (exec), so a signal to it reaches the broker. It gets the
settings of the test that Penstock has, by their Kafka names; the others are left out. With
`PENSTOCK_BROKER_PYTHON` the installed package runs, as in the slow suites.

One broker with a PLAINTEXT listener: a node of another kind ends with 2 and says why.
"""

import os
import sys
from pathlib import Path

from compat.kafka_it.launch_arguments import LaunchArguments, read_arguments
from tests.oracle.penstock_broker import penstock_environment

HOST = "127.0.0.1"
UNSUPPORTED_EXIT = 2


def unsupported(node: LaunchArguments) -> str | None:
    """Why Penstock cannot be this node; None if it can."""
    if "broker" not in node.roles:
        return "error: node without the broker role (Penstock has no separate controller)"
    if node.security != "PLAINTEXT":
        return f"error: listener protocol {node.security} not supported (only PLAINTEXT)"
    if "authorizer.class.name" in node.settings:
        return "error: authorizers not supported"
    return None


def main() -> None:
    """Become the broker."""
    node = read_arguments(sys.argv[1:], os.environ)
    problem = unsupported(node)
    if problem is not None:
        sys.stderr.write(f"{problem}\n")
        sys.exit(UNSUPPORTED_EXIT)
    installed = os.environ.get("PENSTOCK_BROKER_PYTHON")
    environment = {
        **os.environ,
        **penstock_environment(node.settings),
        "PENSTOCK_ADMIN__ENABLED": "false",
        "PENSTOCK_NODE__ID": str(node.node_id),
    }
    if installed:
        # A source tree on the path would hide the installed package.
        environment["PYTHONPATH"] = ""
    python = installed or sys.executable
    address = ["--host", HOST, "--port", str(node.port)]
    folder = ["--data-dir", str(Path(node.data_dir))]
    os.execve(python, [python, "-m", "penstock", "serve", *address, *folder], environment)


if __name__ == "__main__":
    main()
