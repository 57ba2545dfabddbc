"""The memory of a broker with secrets: no core dump, no other process of the user."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.main import run
from penstock.core.settings.config import load_settings
from penstock.core.settings.tree import Settings
from penstock.node.security.process_privacy import has_secrets
from tests.oracle.certificates import CertificateAuthority

LISTENER = '[[listeners]]\nname = "A"\nport = 0\n'
TLS = f'{LISTENER}protocol = "SSL"\ntls = {{ certificate = "a.crt", key = "a.key" }}\n'
SASL = f'{LISTENER}protocol = "SASL_PLAINTEXT"\nmechanisms = ["SCRAM-SHA-512"]\n'
PROCESS = """
import ctypes, os, sys
from datetime import UTC, datetime
from pathlib import Path
from penstock.broker.tls.contexts import build_server_tls
from penstock.broker.tls.tls_files import TlsFiles, read_files
from penstock.core.settings.config import load_settings
from penstock.node.security.process_privacy import protect_memory

files = TlsFiles(sys.argv[1], sys.argv[2])
snapshot = read_files(files)
settings = load_settings(sys.argv[3], {}, {}).settings
build_server_tls(files, snapshot, datetime.now(UTC))  # imports what it needs
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
seen = [ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)]
seen.append(protect_memory(settings))
seen.append(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
build_server_tls(files, snapshot, datetime.now(UTC))  # the key goes through /proc/self/fd
os.listdir("/proc/self/fd")
Path("/proc/self/statm").read_text()
print(seen)
"""


def loaded(text: str) -> Settings:
    return load_settings(text, {}, {}).settings


@pytest.mark.parametrize(
    ("text", "is_secret"),
    [
        ("", False),
        (f'{LISTENER}protocol = "PLAINTEXT"\n', False),
        (TLS, True),
        (SASL, True),
        ('[admin]\nauth = "basic"\n', True),
        ('[admin]\ncertificate = "a.crt"\nkey = "a.key"\n', True),
        ('[admin]\nenabled = false\nauth = "basic"\n', False),
    ],
)
def test_secrets_are_keys_and_passwords(text: str, is_secret: bool) -> None:
    assert has_secrets(loaded(text)) is is_secret


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
@pytest.mark.parametrize(("text", "seen"), [("", "[1, False, 1]"), (SASL, "[1, True, 0]")])
def test_the_kernel_protects_a_process_with_secrets(tmp_path: Path, text: str, seen: str) -> None:
    """And the broker can still do its work: load keys, and read its own use of memory."""
    server = CertificateAuthority(tmp_path).server()
    words = [sys.executable, "-c", PROCESS, str(server.chain), str(server.key), text]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == (seen, "")


def test_a_broker_is_protected_before_it_reads_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    protected: list[Settings] = []
    monkeypatch.setattr("penstock.node.security.process_privacy.protect_memory", protected.append)
    monkeypatch.chdir(tmp_path)
    Path("penstock.toml").write_text(TLS)
    assert run(["serve", "--no-admin", "--config", "penstock.toml"]) == 2
    assert "a.crt" in capfd.readouterr().err
    assert [one.listeners[0].name for one in protected] == ["A"]
