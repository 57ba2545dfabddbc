"""`--command-config`: nothing is ignored that would change the connection, nothing is leaked."""

from pathlib import Path

import pytest

from penstock.cli import exits
from tests.cli.conftest import Penstock

KEY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQCanary"


def listed(penstock: Penstock, tmp_path: Path, content: bytes) -> tuple[int, str]:
    """Exit code and errors of a command with this file; no broker answers."""
    file = tmp_path / "client.properties"
    file.write_bytes(content)
    outcome = penstock(
        *("topic", "list", "--bootstrap-server", "127.0.0.1:1", "--timeout", "1"),
        *("--command-config", str(file)),
    )
    return outcome.code, outcome.output + outcome.errors


@pytest.mark.parametrize(
    "content",
    [
        f"security.protocol=SSL\nssl.keystore.key=-----BEGIN PRIVATE KEY-----\n{KEY}\n",
        f"security.protocol=SSL\nssl.keystore.key=x\n{KEY}==\n{KEY}==\n",
        f'sasl.jaas.config=Module required password=\n"{KEY}";\n',
        f"acks=all\n{KEY}+/=1\n",
        f"a={KEY}\na={KEY}\n",
    ],
)
def test_lines_of_a_secret_are_not_shown(penstock: Penstock, tmp_path: Path, content: str) -> None:
    code, shown = listed(penstock, tmp_path, content.encode())
    assert code != 0
    assert "anary" not in shown


@pytest.mark.parametrize(
    "content",
    [
        b"Security.Protocol=SSL\n",
        b"kafka.security.protocol=SSL\n",
        b"enable.ssl.certificate.verification=false\n",
        b"\\u00a0security.protocol=SSL\n",
        b"\xc2\xa0security.protocol=SSL\n",
        b"security.protocol=TLS\n",
        b"ssl.ca.location=/x\n",
        b"client.id=" + b"x" * 40_000,
        b"client.id=\\ud800\n",
        b"security.protocol\n",
    ],
)
def test_a_setting_without_an_effect_is_an_error(
    penstock: Penstock, tmp_path: Path, content: bytes
) -> None:
    code, shown = listed(penstock, tmp_path, content)
    assert code not in (0, exits.UNREACHABLE), shown
    assert "client.properties" in shown


def test_a_byte_order_mark_does_not_hide_the_protocol(penstock: Penstock, tmp_path: Path) -> None:
    code, shown = listed(penstock, tmp_path, "\ufeffsecurity.protocol=SASL_SSL\n".encode())
    assert code != exits.UNREACHABLE
    assert "sasl.mechanism" in shown, "the connection was opened without TLS"


def test_other_settings_of_kafka_are_noted(penstock: Penstock, tmp_path: Path) -> None:
    code, shown = listed(penstock, tmp_path, f"acks=all\nlinger.ms=5\n{KEY}=1\n".encode())
    assert code == exits.UNREACHABLE
    assert "without an effect on a command: acks, linger.ms, 1 other name." in shown


def test_against_config_needs_against(penstock: Penstock, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("")
    outcome = penstock("bench", "produce", "--against-config", str(file))
    assert outcome.code == 2
    assert "--against" in outcome.errors
