"""A store with MQTT: Mosquitto, a broker, the bridge of the example, and devices.

Guarantees: each server is a real process on loopback, with the settings of the example; ports and
folders are replaced. Only own children are signalled, by process id, and they end with the test.
"""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self

from mqtt_link import properties_for
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from tests.oracle.cache import tool
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import HOST, free_port

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLE: Final = ROOT / "examples" / "mqtt"
WAIT_SECONDS_MAX: Final = 60.0
READY: Final = ("up is ready", "down is ready")


class Process:
    """A child process that can be killed and started again with the same command."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str]) -> None:
        self._command = [tool("setpriv", "install util-linux"), "--pdeathsig", "KILL", *command]
        self._log = log
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, mark: str) -> None:
        """Start it, and wait for a line with this mark in its output."""
        seen = self.text().count(mark)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, env=self._environment
            )
        self.wait_for(mark, seen + 1)

    def text(self) -> str:
        """Return the output over all its starts."""
        return self._log.read_text() if self._log.exists() else ""

    def wait_for(self, mark: str, count: int = 1) -> None:
        """Wait until the output has a mark this number of times."""
        assert self._process is not None
        waited = threading.Event()
        for _ in range(int(WAIT_SECONDS_MAX / 0.01)):
            if self.text().count(mark) >= count:
                return
            assert self._process.poll() is None, self.text()[-3000:]
            waited.wait(0.01)
        raise AssertionError(f"'{mark}' was not printed:\n{self.text()[-3000:]}")

    def wait_ended(self) -> int:
        """Wait for its end; return the exit code."""
        assert self._process is not None
        return self._process.wait(WAIT_SECONDS_MAX)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def terminate(self) -> int:
        """SIGTERM; return the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self.wait_ended()


class MqttStore:
    """The three servers."""

    def __init__(self, folder: Path) -> None:
        self.mqtt_port, self.push_port = free_port(), free_port()
        self.folder = folder
        for name in ("mosquitto.conf", "bridge.toml", "penstock.toml"):
            self.write(name, lambda text: text)
        self.broker = penstock_broker(
            folder / "broker", arguments=["--config", str(folder / "penstock.toml")]
        )
        path = shutil.which("mosquitto", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
        assert path is not None, "'mosquitto' is not installed: install mosquitto"
        self.mosquitto = Process(
            [path, "-c", str(folder / "mosquitto.conf")], folder / "mosquitto.log", {}
        )
        command = [sys.executable, str(EXAMPLE / "mqtt_bridge.py"), str(folder / "bridge.toml")]
        sources = os.pathsep.join((str(ROOT / "src"), os.environ.get("PYTHONPATH", "")))
        self.bridge = Process(command, folder / "bridge.log", {"PYTHONPATH": sources})

    def write(self, name: str, change: Callable[[str], str]) -> None:
        """Write a file of the example with the ports of this test, and with changes."""
        text = (EXAMPLE / name).read_text()
        text = text.replace("1883", str(self.mqtt_port)).replace("9095", str(self.push_port))
        text = text.replace("/var/lib/mosquitto/", f"{self.folder}/")
        if name == "mosquitto.conf" and os.geteuid() == 0:
            text += "user root\n"  # else it becomes a user that cannot write to this folder
        (self.folder / name).write_text(change(text))

    def start_mosquitto(self) -> None:
        """Start Mosquitto and wait until it listens."""
        self.mosquitto.start(" running\n")

    def start_bridge(self) -> None:
        """Start the bridge and wait until both directions are ready."""
        seen = [self.bridge.text().count(mark) for mark in READY]
        self.bridge.start(READY[0])
        self._wait_ready(seen)

    def kill(self, name: str) -> None:
        """Kill a server with SIGKILL and start it again."""
        if name == "broker":
            seen = [self.bridge.text().count(mark) for mark in READY]
            self.broker.kill()
            self.broker.start()
            self._wait_ready(seen)
        elif name == "mosquitto":
            seen = [self.bridge.text().count(mark) for mark in READY]
            self.mosquitto.kill()
            self.start_mosquitto()
            self._wait_ready(seen)
        else:
            self.bridge.kill()
            self.start_bridge()

    def _wait_ready(self, seen: list[int]) -> None:
        for mark, count in zip(READY, seen, strict=True):
            self.bridge.wait_for(mark, count + 1)


@contextmanager
def mqtt_store(
    folder: Path, prepare: Callable[[MqttStore], None] = lambda _: None
) -> Iterator[MqttStore]:
    """Start all three servers, with prepared files; end them."""
    store = MqttStore(folder)
    prepare(store)
    with ExitStack() as stack:
        stack.enter_context(store.broker)
        store.start_mosquitto()
        stack.callback(store.mosquitto.kill)
        store.start_bridge()
        stack.callback(store.bridge.kill)
        yield store


class Device:
    """A device with a client of its own; it connects again by itself."""

    def __init__(self, port: int, *, is_old: bool = False) -> None:
        protocol = MQTTProtocolVersion.MQTTv311 if is_old else MQTTProtocolVersion.MQTTv5
        self.client = Client(CallbackAPIVersion.VERSION2, protocol=protocol)
        self._port = port
        self._filters: set[str] = set()
        self._changed = threading.Condition()
        self.acknowledged: dict[int, ReasonCode] = {}
        """By packet number."""
        self.received: list[MQTTMessage] = []
        self.client.on_publish = self._on_publish
        self.client.on_message = self._on_message
        self.client.on_subscribe = lambda *_: self._note(subscribed=True)
        self.client.on_connect = lambda *_: self._on_connect()
        self._is_subscribed = self._is_connected = False

    def __enter__(self) -> Self:
        self.client.reconnect_delay_set(1, 1)
        self.client.connect(HOST, self._port)
        self.client.loop_start()
        self.wait(lambda: self._is_connected, "Mosquitto does not answer")
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def _note(self, *, subscribed: bool = False) -> None:
        with self._changed:
            self._is_subscribed |= subscribed
            self._changed.notify_all()

    def _on_publish(
        self, _client: Client, _data: object, number: int, code: ReasonCode, _p: object
    ) -> None:
        self.acknowledged[number] = code
        self._note()

    def _on_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        self.received.append(message)
        self._note()

    def is_soon(self, is_true: Callable[[], bool], seconds_max: float) -> bool:
        """Return whether something becomes true after a message or an acknowledgement."""
        with self._changed:
            return self._changed.wait_for(is_true, seconds_max)

    def wait(self, is_true: Callable[[], bool], reason: str) -> None:
        """Wait until something is true after a message or an acknowledgement."""
        assert self.is_soon(is_true, WAIT_SECONDS_MAX), reason

    def _on_connect(self) -> None:
        self._is_connected = True
        for one in self._filters:
            self.client.subscribe(one, qos=1)
        self._note()

    def subscribe(self, wanted: str) -> None:
        """Subscribe with QoS 1, now and after each new connection."""
        self._is_subscribed = False
        self._filters.add(wanted)
        self.client.subscribe(wanted, qos=1)
        self.wait(lambda: self._is_subscribed, f"no answer to the subscription of {wanted}")

    def send(self, topic: str, payload: bytes, qos: int = 1, **properties: object) -> int:
        """Publish; return the packet number."""
        found = properties_for(PacketTypes.PUBLISH, **properties) if properties else None
        return self.client.publish(topic, payload, qos=qos, properties=found).mid

    def wait_acknowledged(self, count: int) -> None:
        """Wait for this number of PUBACKs."""
        self.wait(
            lambda: len(self.acknowledged) >= count,
            f"{len(self.acknowledged)} of {count} messages are acknowledged",
        )
