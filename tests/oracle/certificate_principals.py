"""Principals of certificates, by Java's X500Principal and Kafka's SslPrincipalMapper.

Guarantees: nothing here judges; `CertificatePrincipals.java` calls the classes that a broker of
Apache Kafka calls. Many questions go to one process, because Java needs a second to start.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.oracle.cache import OracleError, built, content_key, progress, run, tool
from tests.oracle.kafka_jars import class_path, java_command, java_version

_SOURCE = Path(__file__).with_name("CertificatePrincipals.java")
_TIMEOUT_SECONDS = 300


def name_question(certificate: bytes) -> str:
    """Ask for the distinguished name of a certificate in DER."""
    return f"name {certificate.hex()}"


def rules_question(rules: str) -> str:
    """Ask whether the rules are accepted."""
    return f"rules {rules.encode().hex()}"


def map_question(rules: str, name: str) -> str:
    """Ask for the principal of a distinguished name."""
    return f"map {rules.encode().hex()} {name.encode().hex()}"


def answers(questions: Sequence[str]) -> list[tuple[str, str]]:
    """Return for each question its outcome, and the name or the reason."""
    folder = built(f"interop/certificate-principals-{_key()}", _compile)
    command = java_command("CertificatePrincipals", appended_to_class_path=folder)
    finished = subprocess.run(
        command,
        input="\n".join(questions) + "\n",
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    lines = finished.stdout.splitlines()
    if finished.returncode or len(lines) != len(questions):
        raise OracleError(f"{len(lines)} answers: {finished.stderr[-2000:]}")
    return [_answer(line) for line in lines]


def _answer(line: str) -> tuple[str, str]:
    outcome, _, text = line.partition(" ")
    return outcome, bytes.fromhex(text).decode()


def _key() -> str:
    return content_key(_SOURCE, java_version(), class_path())


def _compile(folder: Path) -> None:
    progress("compiling CertificatePrincipals.java")
    javac = tool("javac", "install a JDK, 17 or later (Debian: default-jdk-headless)")
    run([javac, "-nowarn", "-d", folder, "-cp", class_path(), _SOURCE])
