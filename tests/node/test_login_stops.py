"""A broker that stops, and one that is asked over its admin port, while clients log in."""

import json
import logging
import socket
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.core.settings.config import load_settings
from penstock.core.settings.tree import Settings
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker

STOP_SECONDS_MAX = 8.0
CHECKS_SECONDS_MAX = 30.0
"""A connection is closed after the check of its password, ten milliseconds each."""
CLIENTS = 40
PASSWORD = "administrator-secret"


def secured(folder: Path, *, has_admin_port: bool = False) -> Settings:
    """One listener, with PLAIN by the SCRAM users of the cluster."""
    file = folder / "administrator.txt"
    file.write_text(f"admin:{PASSWORD}\n")
    file.chmod(0o600)
    text = f"""
[node]
storage = "memory"
[security]
bootstrap_admin_file = "{file}"
[[listeners]]
name = "CLIENTS"
port = 0
protocol = "SASL_PLAINTEXT"
mechanisms = ["PLAIN"]
"""
    given = {"admin.port": 0} if has_admin_port else {"admin.enabled": False}
    return load_settings(text, {}, given).settings


def log_in(asker: Asker, password: str = PASSWORD) -> None:
    asker.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = b"\0admin\0" + password.encode()
    asker.send(SaslAuthenticateRequest(auth_bytes=token), 2)


def test_a_stop_does_not_wait_for_logins(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Connections without a byte, with a part of a login, in a check, and in a delay."""
    broker = Broker(secured(tmp_path))
    broker.start()
    with ExitStack() as stack:
        for number in range(CLIENTS):
            asker = stack.enter_context(Asker(broker.port))
            if number % 4 == 1:
                asker.send_bytes(b"\0\0\0")
            elif number % 4:
                log_in(asker, PASSWORD if number % 4 == 2 else "wrong")
        begun = time.monotonic()
        broker.stop()
        assert time.monotonic() - begun < STOP_SECONDS_MAX
    problems = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert not problems, problems[0].getMessage()
    assert PASSWORD not in caplog.text


def test_requests_that_were_accepted_are_answered_at_a_stop(tmp_path: Path) -> None:
    with Broker(secured(tmp_path)) as broker, Asker(broker.port) as asker:
        log_in(asker)
        assert asker.receive(SaslHandshakeResponse).error_code == 0
        assert asker.receive(SaslAuthenticateResponse).error_code == 0
        asker.ask(MetadataRequest(topics=()), 9, MetadataResponse)
        broker.stop()
        assert asker.is_closed()


def test_a_crash_of_a_client_in_its_login_leaves_nothing(tmp_path: Path) -> None:
    with Broker(secured(tmp_path)) as broker:
        for _ in range(CLIENTS):
            with Asker(broker.port) as asker:
                log_in(asker)
        with socket.create_connection(("127.0.0.1", broker.port)) as silent:
            silent.sendall(b"\0")
        deadline = time.monotonic() + CHECKS_SECONDS_MAX
        while broker.metrics()["connections_closed_total"] <= CLIENTS:
            assert time.monotonic() < deadline, broker.metrics()["connections"]
            time.sleep(0.01)
        assert broker.metrics()["connections"] == 0
        assert broker.metrics()["handler_failures_total"] == 0


def test_the_admin_port_needs_no_login_of_its_own(tmp_path: Path) -> None:
    """Its requests enter by the listener with SASL, and their callers are known already."""
    with Broker(secured(tmp_path, has_admin_port=True)) as broker:
        address = f"http://127.0.0.1:{broker.admin_port}/api/v1/topics"
        with urllib.request.urlopen(address, timeout=10) as answer:
            assert answer.status == 200
            assert json.load(answer)["topics"] == []
