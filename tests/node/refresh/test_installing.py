"""Snapshots of a parent's topic, built and installed in a child's mirror, between real brokers."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.push import PushClosedError, open_push
from penstock.client.records.record_deletion import delete_before
from penstock.core.types import TopicPartition
from penstock.edge.pipes import back_off, pipe_runner
from penstock.edge.refresh.manifest import read_manifest
from penstock.edge.refresh.snapshot_files import records_of, verified_batches
from penstock.edge.refresh.snapshot_stores import DirectoryStore, load_manifest
from penstock.testing import Broker
from tests.node.pipes.pipe_scene import (
    TOPIC,
    Operator,
    child_settings,
    client_of,
    down_pipe,
    until,
)
from tests.node.refresh.refresh_scene import build, install, state_of, write


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
        for number in range(10):
            write(running, {f"k{number % 4}": f"v{number}"}, partition=0)
        write(running, {"gone": "x", "k1": None}, partition=0)
        write(running, {"gone": None}, partition=0)
        write(running, {"other": "1"}, partition=1)
        yield running


def test_a_snapshot_has_the_last_value_of_each_key_with_its_offset(
    parent: Broker, tmp_path: Path
) -> None:
    manifest = build(parent.bootstrap_server, tmp_path)
    store = DirectoryStore(tmp_path)
    assert load_manifest(store) == manifest
    assert manifest.ends == {0: 13, 1: 1}
    found = {
        record.key.decode(): (record.offset, record.value.decode())
        for batch in verified_batches(store, manifest.partitions[0])
        for record in records_of(batch)
        if record.key is not None and record.value is not None
    }
    assert found == state_of(parent) == {"k0": (8, "v8"), "k2": (6, "v6"), "k3": (7, "v7")}
    assert manifest.records == 4
    with client_of(parent.bootstrap_server) as cluster:
        assert manifest.topic_id == cluster.describe([TOPIC])[TOPIC].topic_id


def test_a_build_replaces_the_snapshot_before_and_removes_left_overs(
    parent: Broker, tmp_path: Path
) -> None:
    first = build(parent.bootstrap_server, tmp_path)
    left_over = tmp_path / f"{'0' * 32}-0-{'0' * 8}-{'0' * 20}.log"
    left_over.write_bytes(b"of a build that did not end")
    (tmp_path / "mine.txt").write_text("kept")
    write(parent, {"k9": "new"}, partition=0)
    second = build(parent.bootstrap_server, tmp_path, compression="none")
    assert second.records == first.records + 1
    names = {one.name for one in tmp_path.iterdir()}
    assert names == {"manifest.json", "mine.txt", *second.file_names}


def test_a_child_that_was_away_too_long_gets_a_snapshot_and_pipes_on(
    parent: Broker, tmp_path: Path
) -> None:
    settings = child_settings([down_pipe(parent.bootstrap_server)], tmp_path / "child")
    with Broker(settings) as child:
        operator = Operator(child)
        operator.wait_in_step()
        child.crash()
        write(parent, {f"k{number}": f"w{number}" for number in range(2, 6)}, partition=0)
        build(parent.bootstrap_server, tmp_path / "snapshot")
        write(parent, {"k2": "late"}, partition=0)
        with client_of(parent.bootstrap_server) as cluster:
            delete_before(cluster, {TopicPartition(TOPIC, 0): 15})
        child.restart()
        until(lambda: "gap" in str(operator.pipe()["reason"]))
        state = install(child, tmp_path / "snapshot")
        assert (state["state"], state["records"]) == ("DONE", 6), state
        operator.wait_in_step()
        expected = {
            "k0": (8, "v8"),
            "k2": (17, "late"),
            "k3": (14, "w3"),
            "k4": (15, "w4"),
            "k5": (16, "w5"),
        }
        assert state_of(child) == expected
        child.restart()
        assert state_of(child) == expected
        child.crash()
        child.restart()
        assert state_of(child) == expected
        write(parent, {"k0": "live"}, partition=0)
        until(lambda: state_of(child)["k0"] == (18, "live"))


def test_a_push_session_of_a_replaced_mirror_learns_what_happened(
    parent: Broker, tmp_path: Path
) -> None:
    settings = child_settings([down_pipe(parent.bootstrap_server)])
    edge = settings.edge.model_copy(update={"push_port": 0})
    with Broker(settings.model_copy(update={"edge": edge})) as child:
        Operator(child).wait_in_step()
        build(parent.bootstrap_server, tmp_path)
        port = child._last_server().push_port
        assert port is not None

        async def closed() -> PushClosedError:
            async with asyncio.timeout(10), await open_push("127.0.0.1", port) as client:
                await client.subscribe(TOPIC, start="latest")
                assert (await asyncio.to_thread(install, child, tmp_path))["state"] == "DONE"
                return await client.wait_closed()

        end = asyncio.run(closed())
    assert "by a refresh" in str(end)
    assert "Connect and subscribe again" in str(end)
    assert end.code == "NOT_LEADER_OR_FOLLOWER"


def test_a_mirror_in_step_keeps_its_own_records_behind_the_snapshot(
    parent: Broker, tmp_path: Path
) -> None:
    with Broker(child_settings([down_pipe(parent.bootstrap_server)])) as child:
        build(parent.bootstrap_server, tmp_path)
        write(parent, {"k0": "after"}, partition=0)
        operator = Operator(child)
        operator.wait_in_step()
        operator.ask("POST", "/hq/pause")
        state = install(child, tmp_path)
        assert state["state"] == "DONE", state
        # The pipe is paused: all records came from the snapshot and from the mirror itself.
        assert state_of(child)["k0"] == (13, "after")
        assert state_of(child) == state_of(parent)
        operator.ask("POST", "/hq/resume")
        write(parent, {"k2": None}, partition=0)
        until(lambda: "k2" not in state_of(child))
        assert operator.pipe()["cut_records"] == 0


def damaged(place: Path, change: dict[str, object]) -> None:
    """Replace fields of a manifest, with a right checksum."""
    path = place / "manifest.json"
    from penstock.edge.refresh.manifest import write_manifest

    manifest = read_manifest(path.read_bytes())
    path.write_bytes(write_manifest(manifest.model_copy(update=change)))


def test_a_snapshot_that_does_not_fit_changes_nothing(parent: Broker, tmp_path: Path) -> None:
    with Broker(child_settings([down_pipe(parent.bootstrap_server)])) as child:
        Operator(child).wait_in_step()
        before = state_of(child)
        place = tmp_path / "snapshot"
        manifest = build(parent.bootstrap_server, place)
        data = next(place.glob("*-0-*.log"))
        right, document = data.read_bytes(), (place / "manifest.json").read_bytes()

        def refused(word: str) -> None:
            state = install(child, place)
            assert state["state"] == "FAILED"
            assert word in str(state["reason"]), state
            assert state_of(child) == before

        damaged(place, {"topic_id": None})
        refused("another topic")
        (place / "manifest.json").write_bytes(document.replace(b'"records": 3', b'"records": 4'))
        refused("checksum")
        (place / "manifest.json").write_bytes(document)
        data.write_bytes(right[:-1])
        refused("half a batch")
        data.write_bytes(right[:70] + bytes([right[70] ^ 1]) + right[71:])
        refused("damaged")
        data.write_bytes(right[:12] + (7).to_bytes(4, "big") + right[16:])
        refused("leader epoch 7")
        data.unlink()
        refused("missing")
        data.write_bytes(right)
        assert json.loads(document)["id"] == manifest.id
        assert install(child, place)["state"] == "DONE"
        assert install(child, tmp_path / "nothing")["state"] == "FAILED"


def test_a_topic_that_clients_write_is_not_replaced(parent: Broker, tmp_path: Path) -> None:
    build(parent.bootstrap_server, tmp_path)
    with Broker(child_settings([])) as child:
        child.create_topic(TOPIC)
        state = install(child, tmp_path)
        assert state["state"] == "FAILED"
        assert "not a mirror" in str(state["reason"])


def test_a_pipe_with_on_gap_refresh_installs_a_snapshot_by_itself(
    parent: Broker, tmp_path: Path
) -> None:
    place = tmp_path / "snapshots"
    pipe = down_pipe(parent.bootstrap_server, on_gap="refresh", refresh_from=f"{place}/{{topic}}")
    with Broker(child_settings([pipe], tmp_path / "child")) as child:
        operator = Operator(child)
        operator.wait_in_step()
        child.crash()
        build(parent.bootstrap_server, place / TOPIC)
        write(parent, {f"k{number}": f"w{number}" for number in range(2, 6)}, partition=0)
        with client_of(parent.bootstrap_server) as cluster:
            delete_before(cluster, {TopicPartition(TOPIC, 0): 15})
        child.restart()
        until(lambda: "too old" in str(operator.pipe()["reason"]))
        build(parent.bootstrap_server, place / TOPIC)
        write(parent, {"k2": "live"}, partition=0)
        operator.wait_in_step()
        assert state_of(child) == {
            "k2": (17, "live"),
            "k4": (15, "w4"),
            "k5": (16, "w5"),
        }
        assert operator.pipe()["gaps"] == 0
