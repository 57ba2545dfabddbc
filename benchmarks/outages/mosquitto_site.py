"""Mosquitto: a bridge from the site to the headquarters, QoS 1 in both directions.

Settings for durability, from mosquitto.conf(5): persistence, saved after each change
(`autosave_on_changes`, `autosave_interval 1`) instead of every 30 minutes; `cleansession false` for
the bridge on both sides; `max_queued_messages 0` (no bound) instead of 1,000, as an outage has
more. Subscribers have lasting sessions. MQTT has no positions, and a repeated publish is a second
message.
"""

import contextlib
import getpass
import shutil
import threading
import time
from pathlib import Path

from benchmarks.outages.cut_link import CutLink
from benchmarks.outages.mqtt_wire import MqttClient
from benchmarks.outages.outage_plan import number_in
from benchmarks.outages.outage_run import Deliver
from benchmarks.outages.site_processes import ServerProcess, folder_bytes, free_port

_COMMON = """allow_anonymous true
persistence true
persistence_location {folder}/data/
autosave_on_changes true
autosave_interval 1
max_queued_messages 0
max_queued_bytes 0
"""
_BRIDGE = """connection headquarters
address 127.0.0.1:{port}
topic up/# out 1
topic down/# in 1
cleansession false
local_cleansession false
notifications false
keepalive_interval 5
restart_timeout 1
bridge_protocol_version mqttv311
"""


class MosquittoSystem:
    """Two brokers."""

    def __init__(self) -> None:
        self.name = "Mosquitto bridge"
        self._publishers: dict[int, MqttClient] = {}

    def start(self, folder: Path) -> None:
        """Start both brokers, and wait until the bridge carries."""
        program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
        self._folder = folder
        self._hub_port, self._site_port = free_port(), free_port()
        self._link = CutLink(self._hub_port)
        self._link.start()
        servers = []
        for name, port in (("hub", self._hub_port), ("site", self._site_port)):
            place = folder / name
            (place / "data").mkdir(parents=True)
            (place / "data").chmod(0o777)
            text = f"user {getpass.getuser()}\nlistener {port} 127.0.0.1\n" + _COMMON.format(
                folder=place
            )
            if name == "site":
                text += _BRIDGE.format(port=self._link.port)
            (place / "mosquitto.conf").write_text(text)
            servers.append(
                ServerProcess([program, "-c", str(place / "mosquitto.conf")], place, port)
            )
        self._hub, self._site = servers
        self._hub.start()
        self._site.start()
        # Sessions begin before the first message.
        for port, name, topic in (
            (self._hub_port, "receive-up", "up/x"),
            (self._site_port, "receive-down", "down/x"),
        ):
            client = MqttClient(port, name)
            client.subscribe(topic)
            client.next_message()
            client.close()
        time.sleep(3)

    def _publish(self, port: int, topic: str, content: bytes) -> None:
        try:
            client = self._publishers.get(port)
            if client is None:
                client = self._publishers[port] = MqttClient(port, f"publish-{topic[:2]}")
            client.publish(topic, content)
        except OSError:
            broken = self._publishers.pop(port, None)
            if broken is not None:
                with contextlib.suppress(OSError):
                    broken.close()
            raise

    def publish_up(self, number: int, content: bytes) -> None:  # noqa: ARG002
        """Publish at the site."""
        self._publish(self._site_port, "up/x", content)

    def publish_down(self, number: int, content: bytes) -> None:  # noqa: ARG002
        """Publish at the headquarters."""
        self._publish(self._hub_port, "down/x", content)

    def _receive(
        self, port: int, name: str, topic: str, deliver: Deliver, is_done: threading.Event
    ) -> None:
        client = MqttClient(port, name)
        try:
            client.subscribe(topic)
            while not is_done.is_set():
                content = client.next_message()
                if content is not None:
                    deliver(number_in(content), None)
        finally:
            client.close()

    def receive_up(self, deliver: Deliver, is_done: threading.Event) -> None:
        """Receive at the headquarters."""
        self._receive(self._hub_port, "receive-up", "up/x", deliver, is_done)

    def receive_down(self, deliver: Deliver, is_done: threading.Event) -> None:
        """Receive at the site."""
        self._receive(self._site_port, "receive-down", "down/x", deliver, is_done)

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
