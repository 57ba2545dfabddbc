"""A broker without TLS and logins imports none of their modules: its start is shorter."""

import subprocess
import sys

PARTS = (
    "penstock.broker.tls.layer",
    "penstock.broker.tls.contexts",
    "penstock.broker.tls.handshakes",
    "penstock.broker.tls.secured_transport",
    "penstock.broker.connections.gate",
    "penstock.broker.connections.client_login",
    "penstock.security.sasl.exchange",
    "penstock.security.certificates.pem",
    "penstock.node.admin_tls",
)
PROGRAM = """
import sys
import penstock.node.server
print(*(name for name in sys.argv[1:] if name in sys.modules))
"""


def test_a_broker_without_security_imports_no_module_for_it() -> None:
    command = [sys.executable, "-c", PROGRAM, *PARTS, "penstock.node.wiring"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert found == ["penstock.node.wiring"], "only the assembly itself is imported"
