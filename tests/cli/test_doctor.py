"""`penstock doctor` on this machine and against real listeners: its findings are true."""

import errno
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.cli.doctor.host import (
    filesystem_of,
    owner_of_port,
    probe_clock,
    probe_directory,
    probe_limits,
    probe_port,
    probe_sync,
    probe_versions,
)
from penstock.cli.doctor.network import probe_address, probe_cluster
from penstock.client.transport.addresses import Address
from penstock.core.settings.tree import settings_of
from penstock.testing import Broker
from tests.cli.conftest import Penstock

TIMEOUT_SECONDS = 10.0


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A web server: it answers in HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield server
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


def test_a_free_port_can_be_listened_on() -> None:
    facts = probe_port("127.0.0.1", 0)
    assert (facts.is_taken, facts.problem) == (False, "")


def test_a_taken_port_is_known_with_its_owner(listener: socket.socket) -> None:
    facts = probe_port("127.0.0.1", port_of(listener))
    assert facts.is_taken
    assert f"process {os.getpid()}," in facts.owner
    assert owner_of_port(port_of(listener)) == facts.owner


def test_an_address_of_somebody_else_cannot_be_listened_on() -> None:
    facts = probe_port("192.0.2.1", 9092)
    assert facts.problem
    assert not facts.is_taken


def test_a_folder_is_looked_at_and_left_as_it_was(tmp_path: Path) -> None:
    facts = probe_directory(str(tmp_path))
    assert facts.exists
    assert facts.is_writable
    assert facts.free_bytes > 0
    assert facts.sync_ms is not None
    assert facts.filesystem
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    facts = probe_directory(str(tmp_path / "a" / "b"))
    assert not facts.exists
    assert facts.nearest == str(tmp_path)
    assert not (tmp_path / "a").exists()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not probe_directory(str(tmp_path / "file")).is_directory


def test_a_folder_that_may_not_be_entered_is_a_finding(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, stat = tmp_path / "locked", Path.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if locked in path.parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    # Root may enter every folder, and tests may be root's.
    monkeypatch.setattr(Path, "stat", refuse)
    done = penstock("doctor", "--data-dir", str(locked / "data"), "--json")
    assert done.code == 1
    by_check = {one["check"]: one for one in json.loads(done.output)["checks"]}
    assert by_check["data"]["level"] == "finding"
    assert "locked/data cannot be written: permission denied" in by_check["data"]["words"]


def test_a_name_that_no_folder_can_have_is_a_finding(tmp_path: Path) -> None:
    facts = probe_directory(str(tmp_path / ("x" * 300)))
    assert not facts.is_writable
    assert facts.problem == "file name too long"


def test_what_cannot_be_synced_says_why() -> None:
    assert probe_sync(Path("/proc"))[0] is None
    assert probe_sync(Path("/proc"))[1]


def test_the_nearest_mount_counts(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/a rw\n"
        "2 1 8:2 / /data rw shared:1 - xfs /dev/b rw\n"
        "3 1 8:3 / /data\\040two rw - tmpfs none rw\n"
    )
    assert filesystem_of(Path("/data/logs"), mounts) == "xfs"
    assert filesystem_of(Path("/data two"), mounts) == "tmpfs"
    assert filesystem_of(Path("/database"), mounts) == "ext4"
    assert filesystem_of(Path("/"), tmp_path / "absent") == ""


def test_this_machine_has_limits_clocks_and_versions() -> None:
    assert 0 < probe_limits().files_soft <= probe_limits().files_hard
    clock = probe_clock(None)
    assert clock.is_monotonic
    assert clock.is_synchronized in {True, False, None}
    assert probe_versions().python.startswith("3.")


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "a" * 64])
def test_a_name_that_does_not_resolve(host: str) -> None:
    assert probe_address(Address(host, 9092), TIMEOUT_SECONDS).resolve_problem


def test_a_name_that_cannot_be_listened_on() -> None:
    assert "cannot be looked up" in probe_port("a..b", 9092).problem


def test_who_does_not_speak_kafka(listener: socket.socket) -> None:
    seen = probe_address(Address("127.0.0.1", port_of(listener)), TIMEOUT_SECONDS)
    assert not seen.connect_problem
    assert not seen.speaks_kafka
    assert "HTTP" in seen.speak_problem


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = port_of(server)
    seen = probe_address(Address("127.0.0.1", port), TIMEOUT_SECONDS)
    assert "refused" in seen.connect_problem


def test_a_broker_is_followed_to_its_advertised_address() -> None:
    settings = settings_of(
        {
            "listener.port": 0,
            "node.storage": "memory",
            "listener.advertised_host": "no-such-host.invalid",
        }
    )
    with Broker(settings) as broker:
        facts = probe_cluster([Address("127.0.0.1", broker.port)], TIMEOUT_SECONDS)
    assert facts.bootstrap[0].speaks_kafka
    (told,) = facts.advertised
    assert told.seen.address.startswith("no-such-host.invalid:")
    assert told.seen.resolve_problem


def test_the_command_against_a_broker(penstock: Penstock) -> None:
    with Broker() as broker:
        done = penstock("doctor", "--bootstrap", broker.bootstrap_server, "--json")
    document = json.loads(done.output)
    by_check = {one["check"]: one for one in document["checks"]}
    assert by_check["bootstrap"]["level"] == "fine"
    assert by_check["advertised"]["level"] == "fine"
    assert done.code == (1 if document["findings"] else 0)


def test_the_command_with_settings_that_will_hurt(
    penstock: Penstock, tmp_path: Path, listener: socket.socket
) -> None:
    (tmp_path / "file").touch()
    config = tmp_path / "penstock.toml"
    config.write_text(
        f'[listener]\nport = {port_of(listener)}\n[node]\ndata_dir = "{tmp_path / "file"}"\n'
    )
    done = penstock("doctor", "--config", str(config))
    assert done.code == 1
    assert "is a file" in done.output
    assert "no Kafka broker listens" in done.output


def test_nobody_at_the_bootstrap_address(penstock: Penstock) -> None:
    done = penstock("doctor", "--bootstrap-server", "localhost:1")
    assert done.code == 1
    assert "localhost:1 is unreachable" in done.output


def test_a_malformed_address_is_wrong_usage(penstock: Penstock) -> None:
    done = penstock("doctor", "--bootstrap-server", "localhost:nine")
    assert done.code == 2
    assert "--bootstrap-server" in done.errors
    assert done.output == ""


def test_a_data_directory_is_not_looked_at_from_afar(penstock: Penstock) -> None:
    done = penstock("doctor", "--bootstrap-server", "localhost:1", "--data-dir", "somewhere")
    assert done.code == 2
    assert "give one of them" in done.errors
