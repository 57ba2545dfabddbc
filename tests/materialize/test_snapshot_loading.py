"""Rows from a snapshot: equal to the compacted topic, swapped in at the end, refused if wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.client.cluster import Cluster
from penstock.client.records.record_deletion import delete_before
from penstock.core.types import TopicPartition
from penstock.edge.refresh.manifest import MANIFEST_FILE, read_manifest, write_manifest
from penstock.edge.refresh.snapshot_errors import SnapshotError
from penstock.materialize.materializer import MaterializeOptions, Materializer
from penstock.materialize.row_store import RowStore
from penstock.materialize.snapshot_loading import LogBounds, load_snapshot, open_snapshot
from penstock.materialize.topic_decisions import Generation
from penstock.materialize.topic_follower import UnreadableTopicError
from tests.materialize.conftest import Write, load
from tests.materialize.snapshot_steps import BOUNDS, TOPIC, check, write_old, write_snapshot
from tests.materialize.snapshot_steps import load as load_steps
from tests.materialize.topic_model import (
    compacted,
    environment,
    stored_positions,
    stored_rows,
    topic_events,
)
from tests.node.refresh.refresh_scene import build

ROOT = Path(__file__).resolve().parents[2]
STATEMENTS_MIN = 40


def load_from(cluster: Cluster, path: Path, topic: str, place: Path) -> None:
    options = MaterializeOptions(path, {topic: ()}, snapshots={topic: open_snapshot(str(place))})
    service = Materializer(options, cluster)
    try:
        service.load()
    finally:
        service.close()


def test_rows_of_a_snapshot_and_of_later_records_are_the_compacted_topic(
    bootstrap: str, cluster: Cluster, topic: str, write: Write, tmp_path: Path
) -> None:
    path, place = tmp_path / "store" / "x.sqlite", tmp_path / "snapshot"
    write(topic, *[(f"k{number % 7}", f"v{number}") for number in range(40)])
    write(topic, *[("k3", None)])
    load(bootstrap, path, [topic])
    build(bootstrap, place, topic)
    write(topic, *[("k1", "later"), ("k2", None), ("new", "1")])
    load_from(cluster, path, topic, place)
    assert stored_rows(path, topic) == compacted(topic_events(bootstrap, topic))
    store = RowStore.open(path)
    stored = store.topics()[topic]
    store.close()
    assert (stored.live.number, stored.building) == (2, None)


def test_a_first_load_from_a_snapshot_needs_only_the_log_behind_it(
    bootstrap: str, cluster: Cluster, topic: str, write: Write, tmp_path: Path
) -> None:
    write(topic, *[(f"k{number}", "old") for number in range(10)])
    expected = compacted(topic_events(bootstrap, topic))
    place, path = tmp_path / "snapshot", tmp_path / "x.sqlite"
    manifest = build(bootstrap, place, topic)
    delete_before(cluster, {TopicPartition(topic, at): end for at, end in manifest.ends.items()})
    load_from(cluster, path, topic, place)
    assert stored_rows(path, topic) == expected
    assert stored_positions(path, topic) == manifest.ends


def test_snapshots_that_do_not_fit_are_refused_and_change_nothing(
    bootstrap: str, cluster: Cluster, topic: str, write: Write, tmp_path: Path
) -> None:
    path, place = tmp_path / "x.sqlite", tmp_path / "snapshot"
    write(topic, *[(f"k{number}", "old") for number in range(10)])
    load(bootstrap, path, [topic])
    before = stored_rows(path, topic)
    manifest = build(bootstrap, place, topic)

    def refused(word: str) -> None:
        with pytest.raises(SnapshotError, match=word):
            load_from(cluster, path, topic, place)
        assert stored_rows(path, topic) == before

    document = (place / MANIFEST_FILE).read_bytes()
    other = read_manifest(document).model_copy(update={"topic_id": None})
    (place / MANIFEST_FILE).write_bytes(write_manifest(other))
    refused("another topic")
    (place / MANIFEST_FILE).write_bytes(document)
    data = next(place.glob("*.log"))
    right = data.read_bytes()
    data.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    refused("damaged")
    data.write_bytes(right)
    write(topic, *[(f"k{number}", "new") for number in range(10)])
    ends = {TopicPartition(topic, at): end + 1 for at, end in manifest.ends.items()}
    delete_before(cluster, ends)
    refused("log begins at")


def test_a_stopped_load_leaves_the_old_rows_and_is_repeated(tmp_path: Path) -> None:
    path, place = tmp_path / "x.sqlite", tmp_path / "snapshot"
    write_snapshot(place)
    write_old(path)
    for stops_at in (1, 4, 8, 11):
        left = stops_at

        def should_stop() -> bool:
            nonlocal left
            left -= 1
            return left <= 0

        store = RowStore.open(path)
        assert not load_snapshot(store, open_snapshot(str(place)), TOPIC, BOUNDS, should_stop)
        store.close()
        assert not check(path)
    load_steps(path, place)
    assert check(path)


def test_a_load_that_did_not_end_is_not_completed_from_the_log(
    bootstrap: str, cluster: Cluster, topic: str, write: Write, tmp_path: Path
) -> None:
    path, place = tmp_path / "x.sqlite", tmp_path / "snapshot"
    write(topic, *[(f"k{number}", "old") for number in range(10)])
    load(bootstrap, path, [topic])
    before = stored_rows(path, topic)
    manifest = build(bootstrap, place, topic)
    store = RowStore.open(path)
    found = cluster.describe([topic])[topic]
    bounds = LogBounds(dict.fromkeys(manifest.ends, 0), manifest.ends)
    turns = iter([False] * sum(len(one.files) for one in manifest.partitions))
    stop = lambda: next(turns, True)  # noqa: E731 (behind the verification)
    assert not load_snapshot(store, open_snapshot(str(place)), found, bounds, stop)
    assert store.topics()[topic].building is not None
    store.close()
    # The log does not have the rows that are missing.
    delete_before(cluster, {TopicPartition(topic, at): end for at, end in manifest.ends.items()})
    with pytest.raises(UnreadableTopicError, match="from a snapshot did not end") as refused:
        load(bootstrap, path, [topic])
    assert "--refresh-from" in refused.value.hint
    assert stored_rows(path, topic) == before
    load_from(cluster, path, topic, place)
    assert stored_rows(path, topic) == before
    assert stored_positions(path, topic) == manifest.ends


def test_without_the_swap_at_ready_a_part_of_the_snapshot_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, place = tmp_path / "x.sqlite", tmp_path / "snapshot"
    write_snapshot(place)
    write_old(path)
    monkeypatch.setattr(Generation, "is_ready", property(lambda _self: True))
    store = RowStore.open(path)
    store.begin_generation("price", TOPIC.topic_id, {0: 0, 1: 0}, {0: 40, 1: 40})
    store.install_ready("price")
    store.close()
    with pytest.raises(AssertionError):
        check(path)


@pytest.mark.crash
def test_a_kill_at_every_statement_of_a_load(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.materialize.snapshot_steps", str(tmp_path)],
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    print(f"killed before each of {done.stdout.strip()} statements")
    assert int(done.stdout) >= STATEMENTS_MIN
