"""Installations that are cancelled, find no room, or meet other changes of their mirror."""

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from penstock.client.records.record_deletion import delete_before
from penstock.core.types import TopicPartition
from penstock.edge.pipes import back_off, pipe_runner
from penstock.edge.refresh.manifest import read_manifest, write_manifest
from penstock.node.pipes.log_preparing import LogCopy
from penstock.storage import install_runner, log_installation
from penstock.storage.log_installation import LogInstallation
from penstock.storage.managed_directory import ManagedDirectory
from penstock.testing import Broker
from tests.node.pipes.pipe_scene import TOPIC, Operator, child_settings, client_of, down_pipe, until
from tests.node.refresh.refresh_scene import build, install, state_of, write

SECONDS_MAX = 10.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe_runner, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(pipe_runner, "LOCAL_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(back_off, "PAUSE_SECONDS_MIN", 0.02)
    monkeypatch.setattr(back_off, "PAUSE_SECONDS_MAX", 0.1)


@pytest.fixture
def parent() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic(TOPIC, partitions=2)
        write(running, {"a": "1", "b": "2"}, partition=0)
        write(running, {"a": "3"}, partition=0)
        write(running, {"other": "1"}, partition=1)
        yield running


class Gate:
    """Holds a call of a worker thread until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def before(self, call: Callable[..., object]) -> Callable[..., object]:
        """Return a call that waits at the gate first."""

        def waiting(*given: object) -> object:
            self.reached.set()
            assert self.opened.wait(SECONDS_MAX)
            return call(*given)

        return waiting


def begin(child: Broker, place: Path) -> None:
    """Begin an installation, and do not wait for it."""
    url = f"http://127.0.0.1:{child.admin_port}/api/v1/refreshes/{TOPIC}"
    assert httpx.post(url, json={"place": str(place)}, timeout=10).is_success


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("way", ["pipe", "operator"])
def test_an_installation_that_is_cancelled_in_its_switch_ends_it_first(
    parent: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    place, gate = tmp_path / "snapshots", Gate()
    options = {"on_gap": "refresh", "refresh_from": f"{place}/{{topic}}"} if way == "pipe" else {}
    pipe = down_pipe(parent.bootstrap_server, **options)
    with Broker(child_settings([pipe], tmp_path / "child")) as child:
        operator = Operator(child)
        operator.wait_in_step()
        child.crash()
        write(parent, {"a": "4", "b": "5"}, partition=0)
        build(parent.bootstrap_server, place / TOPIC)
        with client_of(parent.bootstrap_server) as cluster:
            delete_before(cluster, {TopicPartition(TOPIC, 0): 5})
        monkeypatch.setattr(
            install_runner, "finish_decided", gate.before(log_installation.finish_decided)
        )
        child.restart()
        if way == "operator":
            begin(child, place / TOPIC)
        assert gate.reached.wait(SECONDS_MAX)
        if way == "pipe":
            operator.ask("POST", "/hq/pause")
            threading.Event().wait(0.3)
            gate.opened.set()
        else:
            threading.Timer(0.3, gate.opened.set).start()
        child.restart()
        monkeypatch.undo()
        until(lambda: state_of(child) == {"a": (3, "4"), "b": (4, "5")})


def test_a_switch_without_room_serves_the_mirror_as_before(
    parent: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(child_settings([down_pipe(parent.bootstrap_server)])) as child:
        Operator(child).wait_in_step()
        before = state_of(child)
        build(parent.bootstrap_server, tmp_path)
        for step in ("copy_snapshot", "finish"):
            with monkeypatch.context() as patch:
                patch.setattr(LogCopy, step, no_space)
                state = install(child, tmp_path)
            assert state["state"] == "FAILED"
            assert "defect" not in str(state["reason"]), state
            assert state["remedy"], state
            assert state_of(child) == before
        assert install(child, tmp_path)["state"] == "DONE"


def test_a_pipe_that_finds_no_room_for_a_snapshot_reports_it_and_tries_again(
    parent: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "snapshots"
    pipe = down_pipe(parent.bootstrap_server, on_gap="refresh", refresh_from=f"{place}/{{topic}}")
    with Broker(child_settings([pipe], tmp_path / "child")) as child:
        operator = Operator(child)
        operator.wait_in_step()
        child.crash()
        write(parent, {"a": "4", "b": "5"}, partition=0)
        build(parent.bootstrap_server, place / TOPIC)
        with client_of(parent.bootstrap_server) as cluster:
            delete_before(cluster, {TopicPartition(TOPIC, 0): 5})
        with monkeypatch.context() as patch:
            patch.setattr(LogCopy, "finish", no_space)
            child.restart()
            until(lambda: "No space" in str(operator.pipe()["reason"]))
            assert "defect" not in str(operator.pipe()["reason"])
        operator.wait_in_step()
        assert state_of(child) == {"a": (3, "4"), "b": (4, "5")}


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (LogInstallation, "replace_files"),
        (ManagedDirectory, "write_behind"),
        (LogInstallation, "load"),
        (log_installation, "conclude"),
    ],
)
def test_a_full_disk_after_the_decision_delays_the_installation(
    parent: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: object, name: str
) -> None:
    settings = child_settings([down_pipe(parent.bootstrap_server)], tmp_path / "child")
    with Broker(settings) as child:
        Operator(child).wait_in_step()
        build(parent.bootstrap_server, tmp_path / "snapshot")
        real, calls = getattr(place, name), []

        def full_at_first(*given: object) -> object:
            calls.append(given)
            # The second log is the first one that finds no room.
            if len(calls) in (2, 3):
                no_space()
            return real(*given)

        with monkeypatch.context() as patch:
            patch.setattr(place, name, full_at_first)
            patch.setattr(install_runner, "_FULL_RETRY_SECONDS", 0.01)
            assert install(child, tmp_path / "snapshot")["state"] == "DONE"
        expected = {"b": (1, "2"), "a": (2, "3")}
        assert state_of(child) == expected
        write(parent, {"b": "9"}, partition=0)
        until(lambda: state_of(child) == {**expected, "b": (3, "9")})
        child.crash()
        child.restart()
        assert state_of(child) == {**expected, "b": (3, "9")}


def test_a_disk_that_stays_full_keeps_only_the_mirror_out_of_service(
    parent: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = child_settings([down_pipe(parent.bootstrap_server)], tmp_path / "child")
    with Broker(settings) as child:
        child.create_topic("own")
        Operator(child).wait_in_step()
        build(parent.bootstrap_server, tmp_path / "snapshot")
        with monkeypatch.context() as patch:
            patch.setattr(LogInstallation, "load", no_space)
            patch.setattr(install_runner, "_FULL_RETRY_SECONDS", 0.0)
            state = install(child, tmp_path / "snapshot")
        assert state["state"] == "FAILED"
        assert "restart" in str(state["reason"]), state
        child.produce("own", "served")
        again = install(child, tmp_path / "snapshot")
        assert again["state"] == "FAILED"
        child.restart()
        assert state_of(child) == {"b": (1, "2"), "a": (2, "3")}
        assert [one.value for one in child.records("own")] == ["served"]


def test_a_promotion_in_a_switch_waits_for_its_end(
    parent: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    with Broker(child_settings([down_pipe(parent.bootstrap_server)])) as child:
        operator = Operator(child)
        operator.wait_in_step()
        build(parent.bootstrap_server, tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(LogCopy, "finish", gate.before(LogCopy.finish))
            begin(child, tmp_path)
            assert gate.reached.wait(SECONDS_MAX)
            promoting = threading.Thread(
                target=lambda: operator.ask("POST", "/hq/promote", {"topics": [TOPIC]})
            )
            promoting.start()
            promoting.join(0.3)
            # A record that is written now would not be in the new log.
            assert promoting.is_alive()
            gate.opened.set()
            promoting.join()
        child.produce(TOPIC, "mine", key="z", partition=0)
        assert state_of(child)["z"] == (3, "mine")


def test_partitions_are_added_only_for_a_snapshot_that_is_right(
    parent: Broker, tmp_path: Path
) -> None:
    with Broker(child_settings([down_pipe(parent.bootstrap_server)])) as child:
        Operator(child).wait_in_step()
        build(parent.bootstrap_server, tmp_path)
        path = tmp_path / "manifest.json"
        manifest = read_manifest(path.read_bytes())
        last = manifest.partitions[1]
        name = last.files[0].name.replace("-1-", "-2-")
        third = last.model_copy(
            update={
                "partition": 2,
                "files": (last.files[0].model_copy(update={"name": name}),),
            }
        )
        more = manifest.model_copy(update={"partitions": (*manifest.partitions, third)})
        path.write_bytes(write_manifest(more))
        state = install(child, tmp_path)
        assert "missing" in str(state["reason"]), state
        with client_of(child.bootstrap_server) as cluster:
            assert len(cluster.describe([TOPIC])[TOPIC].partitions) == 2


def test_a_mirror_that_is_cut_while_it_is_copied_is_not_replaced(
    parent: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(parent.bootstrap_server, tmp_path)
    write(parent, {"a": "4", "b": "5"}, partition=0)
    with Broker(child_settings([down_pipe(parent.bootstrap_server)])) as child:
        Operator(child).wait_in_step()
        real = LogCopy.copy_tail

        def cut_behind(self: LogCopy, stop: Callable[[], bool]) -> None:
            real(self, stop)
            self.log.truncations += 1  # as a cut does

        with monkeypatch.context() as patch:
            patch.setattr(LogCopy, "copy_tail", cut_behind)
            state = install(child, tmp_path)
        assert state["state"] == "FAILED"
        assert "was cut" in str(state["reason"])
        assert state["remedy"] == "Try again."
        assert state_of(child) == {"a": (3, "4"), "b": (4, "5")}
        assert install(child, tmp_path)["state"] == "DONE"


def test_a_copy_that_is_cancelled_leaves_no_files(
    parent: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, gate = tmp_path / "snapshots", Gate()
    pipe = down_pipe(parent.bootstrap_server, on_gap="refresh", refresh_from=f"{place}/{{topic}}")
    with Broker(child_settings([pipe], tmp_path / "child")) as child:
        operator = Operator(child)
        operator.wait_in_step()
        child.crash()
        write(parent, {"a": "4", "b": "5"}, partition=0)
        build(parent.bootstrap_server, place / TOPIC)
        with client_of(parent.bootstrap_server) as cluster:
            delete_before(cluster, {TopicPartition(TOPIC, 0): 5})
        monkeypatch.setattr(LogCopy, "copy_snapshot", gate.before(LogCopy.copy_snapshot))
        child.restart()
        assert gate.reached.wait(SECONDS_MAX)
        operator.ask("POST", "/hq/pause")
        threading.Event().wait(0.2)
        gate.opened.set()
        until(lambda: not list((tmp_path / "child").glob("*-install")))
        threading.Event().wait(0.1)
        assert not list((tmp_path / "child").glob("*-install"))
