"""Penstock: a broker at the site with a pipe down and a pipe up.

Default settings: each append is synced to the disk before it is acknowledged, the mirror is the
parent's log, and records go up in transactions of the parent. The headquarters has a second
listener for the site, because Kafka clients connect to the advertised address.
"""

import sys
import threading
from pathlib import Path

import penstock
from benchmarks.outages.cut_link import CutLink
from benchmarks.outages.kafka_apps import KafkaPublisher, create_topic, receive, wait_for_topic
from benchmarks.outages.outage_run import Deliver
from benchmarks.outages.site_processes import ServerProcess, folder_bytes, free_port

UP, DOWN = "sales", "prices"


class PenstockSystem:
    """Two brokers."""

    def __init__(self) -> None:
        self.name = "Penstock pipes"

    def start(self, folder: Path) -> None:
        """Start both brokers, and wait until the mirror exists."""
        self._folder = folder
        hub_port, inner_port, site_port = free_port(), free_port(), free_port()
        self._hub_address = f"127.0.0.1:{hub_port}"
        self._site_address = f"127.0.0.1:{site_port}"
        self._link = CutLink(inner_port)
        self._link.start()
        hub, site = folder / "hub", folder / "site"
        for one in (hub, site):
            one.mkdir(parents=True)
        (hub / "penstock.toml").write_text(_hub(hub, hub_port, inner_port, self._link.port))
        (site / "penstock.toml").write_text(_site(site, site_port, self._link.port))
        command = [sys.executable, "-m", "penstock", "serve", "--config"]
        # The package that runs this benchmark, also if its path is relative.
        source = {"PYTHONPATH": str(Path(penstock.__file__).resolve().parents[1])}
        self._hub = ServerProcess([*command, str(hub / "penstock.toml")], hub, hub_port, source)
        self._site = ServerProcess([*command, str(site / "penstock.toml")], site, site_port, source)
        self._hub.start()
        create_topic(self._hub_address, UP, DOWN)
        self._site.start()
        create_topic(self._site_address, UP)
        wait_for_topic(self._site_address, DOWN)
        self._up = KafkaPublisher(self._site_address, UP)
        self._down = KafkaPublisher(self._hub_address, DOWN)

    def publish_up(self, number: int, content: bytes) -> int:  # noqa: ARG002
        """Publish at the site."""
        return self._up.publish(content)

    def publish_down(self, number: int, content: bytes) -> int:  # noqa: ARG002
        """Publish at the headquarters."""
        return self._down.publish(content)

    def receive_up(self, deliver: Deliver, is_done: threading.Event) -> None:
        """Read the topic at the headquarters."""
        receive(self._hub_address, UP, deliver, is_done)

    def receive_down(self, deliver: Deliver, is_done: threading.Event) -> None:
        """Read the mirror at the site."""
        receive(self._site_address, DOWN, deliver, is_done)

    def cut(self) -> None:
        """Cut the link."""
        self._link.cut()

    def restore(self) -> None:
        """Restore the link."""
        self._link.restore()

    def kill_site(self) -> None:
        """Kill the broker of the site."""
        self._site.kill()

    def start_site(self) -> None:
        """Start it again."""
        self._site.start()

    def memory_bytes(self) -> int:
        """Return the most memory of the site's broker."""
        self._site.look()
        return self._site.memory_bytes

    def disk_bytes(self) -> int:
        """Return the disk space of the site."""
        return folder_bytes(self._folder / "site" / "data")

    def stop(self) -> None:
        """End both."""
        self._site.kill()
        self._hub.kill()
        self._link.stop()


def _hub(folder: Path, port: int, inner_port: int, link_port: int) -> str:
    return f"""[node]
data_dir = "{folder}/data"
[admin]
enabled = false
[[listeners]]
name = "LOCAL"
protocol = "PLAINTEXT"
port = {port}
[[listeners]]
name = "SITES"
protocol = "PLAINTEXT"
port = {inner_port}
advertised_host = "127.0.0.1"
advertised_port = {link_port}
"""


def _site(folder: Path, port: int, link_port: int) -> str:
    return f"""[node]
data_dir = "{folder}/data"
[admin]
enabled = false
[listener]
port = {port}
[[pipes]]
name = "down"
parent = "127.0.0.1:{link_port}"
topics = ["{DOWN}"]
[[pipes]]
name = "up"
direction = "up"
parent = "127.0.0.1:{link_port}"
topics = ["{UP}"]
site = "site-1"
"""
