"""A broker process follows its settings file: edited, renamed over, behind a link, wrong, right.

The real watcher on a real file system, changed from outside: the active settings are read over the
wire.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cli.brokers import open_cluster
from penstock.client.cluster import Cluster
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = pytest.mark.interop

WAIT_SECONDS_MAX = 20.0


class Scene:
    """A running broker and its file."""

    def __init__(self, broker: RunningBroker, path: Path, cluster: Cluster) -> None:
        self.broker, self.path, self.cluster = broker, path, cluster

    def retention_ms(self) -> str | None:
        (broker_id,) = self.cluster.brokers()
        configs = self.cluster.broker_configs(broker_id).configs
        return next(one.value for one in configs if one.name == "log.retention.ms")

    def becomes(self, value: int) -> None:
        self.until(lambda: self.retention_ms() == str(value), f"retention {value}")

    def logs(self, words: str, times: int = 1) -> None:
        self.until(lambda: self.broker.log_text().count(words) >= times, words)

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not is_so():
            assert time.monotonic() < deadline, f"never: {what}\n{self.broker.log_text()}"
            time.sleep(0.02)


def retention(value_ms: int) -> str:
    return f"[topic_defaults]\nretention_ms = {value_ms}\n"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    path = tmp_path / "penstock.toml"
    path.write_text(retention(1_000))
    with (
        penstock_broker(tmp_path / "broker", arguments=["--config", str(path)]) as broker,
        open_cluster(broker.bootstrap, 10) as cluster,
    ):
        yield Scene(broker, path, cluster)


def replaced(path: Path, text: str) -> None:
    """As careful editors save: a new file, renamed over the old one."""
    aside = path.with_suffix(".new")
    aside.write_text(text)
    aside.rename(path)


def test_a_running_broker_follows_its_file(scene: Scene) -> None:
    path, folder = scene.path, scene.path.parent
    assert scene.retention_ms() == "1000"

    path.write_text(retention(2_000))
    scene.becomes(2_000)

    replaced(path, retention(3_000))
    scene.becomes(3_000)

    # As Kubernetes mounts a ConfigMap: the file is a link through a link that is swapped.
    for version, value in (("v1", 4_000), ("v2", 5_000)):
        (folder / version).mkdir()
        (folder / version / "penstock.toml").write_text(retention(value))
    os.symlink("v1", folder / "..data")
    link = folder / "link"
    os.symlink("..data/penstock.toml", link)
    link.rename(path)
    scene.becomes(4_000)
    os.symlink("v2", folder / "..data_tmp")
    (folder / "..data_tmp").rename(folder / "..data")
    scene.becomes(5_000)

    # Wrong in two ways, then with something that needs a restart: nothing of it counts.
    target = folder / "v2" / "penstock.toml"
    target.write_text(f"{retention(6_000)}retention_bytes = 'x'\nprt = 1\n")
    scene.logs("settings refused: nothing was changed")
    log = scene.broker.log_text()
    assert "retention_bytes = 'x'" in log
    assert "prt (" in log
    target.write_text(f"{retention(6_000)}[node]\nid = 7\n")
    scene.logs("settings refused: nothing was changed", times=2)
    assert "node.id = 7" in scene.broker.log_text()
    assert scene.retention_ms() == "5000"

    target.write_text(f"{retention(6_000)}[[topics]]\nname = 'declared'\npartitions = 2\n")
    scene.becomes(6_000)
    scene.logs("declared topics: create topic declared with 2 partitions")
    scene.until(
        lambda: "declared" in {topic.name for topic in scene.cluster.all_topics()}, "the topic"
    )
    assert len(scene.cluster.partitions_of("declared")) == 2


def test_a_signal_reads_the_file_at_once_and_a_lost_file_ends_nothing(scene: Scene) -> None:
    os.kill(scene.broker.pid, signal.SIGHUP)
    scene.logs("settings: read again, 0 changed")
    scene.path.unlink()
    scene.logs("cannot be read: No such file or directory")
    assert scene.retention_ms() == "1000"
    scene.path.write_text(retention(2_000))
    scene.becomes(2_000)
    assert scene.broker.stop() == 0
