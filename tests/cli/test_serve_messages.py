"""Messages of `penstock serve` when it cannot start: `error:` the problem, `hint:` the remedy."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.exits import FAILED, USAGE
from penstock.storage.disk.filesystem import DiskFileSystem
from tests.cli.conftest import Penstock

ALONE = ("--no-admin", "--port", "0")
IN_USE = "Address already in use"
WITHOUT_ADMIN = "or run without an admin port: --no-admin (admin.enabled = false)."


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port of 127.0.0.1 that this process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def error_and_hint(text: str) -> tuple[str, str]:
    """The two lines of a failure; nothing else is printed."""
    error, hint = text.splitlines()
    return error, hint


def test_the_port_is_in_use(penstock: Penstock, tmp_path: Path, taken_port: int) -> None:
    outcome = penstock(
        "serve", "--no-admin", "--port", str(taken_port), "--data-dir", str(tmp_path)
    )
    assert outcome.code == USAGE
    assert error_and_hint(outcome.errors) == (
        f"error: cannot listen on 127.0.0.1:{taken_port}: Address already in use",
        "hint: Stop the process that uses it, or choose another port with --port (listener.port).",
    )


def test_the_port_of_a_declared_listener_is_in_use(
    penstock: Penstock, tmp_path: Path, taken_port: int
) -> None:
    """The hint named `listener.port`, which is refused beside `[[listeners]]`."""
    file = tmp_path / "penstock.toml"
    file.write_text(
        f'[[listeners]]\nname = "PLAINTEXT"\nport = {taken_port}\nprotocol = "PLAINTEXT"\n'
    )
    outcome = penstock("serve", "--no-admin", "--config", str(file), "--data-dir", str(tmp_path))
    assert outcome.code == USAGE
    assert error_and_hint(outcome.errors)[1] == (
        "hint: Stop the process that uses it, or choose another port for the listener PLAINTEXT in "
        "[[listeners]]."
    )


def test_the_address_is_not_of_this_machine(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_SECURITY__ALLOW_INSECURE", "true")
    outcome = penstock("serve", *ALONE, "--host", "192.0.2.1", "--data-dir", str(tmp_path))
    assert outcome.code == USAGE
    assert error_and_hint(outcome.errors)[1] == (
        "hint: Choose an address of this machine with --host (listener.host)."
    )


def test_other_machines_are_not_served_without_tls(penstock: Penstock, tmp_path: Path) -> None:
    outcome = penstock("serve", *ALONE, "--host", "192.0.2.1", "--data-dir", str(tmp_path))
    assert outcome.code == USAGE
    assert "open to other machines without TLS" in outcome.errors
    assert "security.allow_insecure = true" in outcome.errors


def test_the_admin_port_is_in_use(
    penstock: Penstock, tmp_path: Path, taken_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_ADMIN__ENABLED", "true")
    outcome = penstock(
        "serve", "--port", "0", "--admin-port", str(taken_port), "--data-dir", str(tmp_path)
    )
    assert outcome.code == USAGE
    assert error_and_hint(outcome.errors) == (
        f"error: cannot listen on 127.0.0.1:{taken_port} for administration: {IN_USE}",
        f"hint: Choose another port with --admin-port (admin.port), {WITHOUT_ADMIN}",
    )


def test_the_data_directory_is_in_use(penstock: Penstock, tmp_path: Path) -> None:
    lock = DiskFileSystem().lock(str(tmp_path / ".lock"))
    outcome = penstock("serve", *ALONE, "--data-dir", str(tmp_path))
    lock.release()
    assert outcome.code == FAILED
    assert error_and_hint(outcome.errors) == (
        f"error: the data directory {tmp_path} is in use by another process",
        "hint: Stop that process, or choose another directory with --data-dir (node.data_dir).",
    )


def test_the_data_directory_cannot_be_created(penstock: Penstock, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    outcome = penstock("serve", *ALONE, "--data-dir", str(file / "data"))
    assert outcome.code == USAGE
    assert error_and_hint(outcome.errors) == (
        f"error: the data directory {file}/data cannot be used: {file}: File exists",
        "hint: Check its permissions, or choose another with --data-dir (node.data_dir).",
    )


def test_the_settings_file_cannot_be_read(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "penstock.toml"
    file.touch()

    def refuse(*_: object) -> None:
        raise PermissionError(13, os.strerror(13), str(file))

    # Root may read everything, so the permission is removed here.
    monkeypatch.setattr(Path, "open", refuse)
    outcome = penstock("serve", *ALONE, "--config", str(file))
    assert outcome.code == USAGE
    assert error_and_hint(outcome.errors) == (
        f"error: the settings file {file} cannot be read: Permission denied",
        "hint: Check the path and its permissions (--config, PENSTOCK_CONFIG).",
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"listener = [", "is not TOML: Invalid value (at end of document)"),
        (b"[listenr]\nport = 1\n", "is not a setting"),
        (b"\xff\xfe", "is not UTF-8 text"),
    ],
)
def test_the_settings_file_is_wrong(
    penstock: Penstock, tmp_path: Path, content: bytes, problem: str
) -> None:
    file = tmp_path / "penstock.toml"
    file.write_bytes(content)
    outcome = penstock("serve", *ALONE, "--config", str(file))
    assert outcome.code == USAGE
    error, hint = error_and_hint(outcome.errors)
    assert problem in error
    wanted = f"hint: Correct the file; `penstock config check {file}` checks it."
    assert hint == ("hint: Save the file as UTF-8." if b"\xff" in content else wanted)
