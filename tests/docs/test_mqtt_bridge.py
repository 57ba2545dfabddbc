"""The MQTT bridge of the example between a real Mosquitto and a real broker, over kill -9 of each.

The PUBACK of Mosquitto covers the end of the bridge and of the broker. It does not cover the end of
Mosquitto itself, which acknowledges before it writes: there, receipts of the bridge count.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from paho.mqtt.client import MQTTMessage

from penstock.client.push import PushRecord, open_push
from tests.docs.mqtt_stage import EXAMPLE, ROOT, WAIT_SECONDS_MAX, Device, MqttStore, mqtt_store
from tests.oracle.certificates import CertificateAuthority

pytestmark = pytest.mark.slow

MESSAGES = 2_000
BLOCK = 500
"""A server is killed in the middle of each block but the last."""
LAST_BLOCK = MESSAGES - BLOCK
SCALES = 3
END = b"end"
RESEND_SECONDS = 3.0
SMALL = ("partitions = 3", 'partitions = 3\nsettings = { "max.message.bytes" = "2000" }')


def scale(number: int) -> str:
    """Return the MQTT topic of a message."""
    return f"store/17/scales/{number % SCALES}"


async def read(port: int, topic: str, ends: int) -> list[PushRecord]:
    """Return all records, up to the last record of each scale."""
    found: list[PushRecord] = []
    async with await open_push("127.0.0.1", port) as client, asyncio.timeout(60):
        subscription = await client.subscribe(topic, start="earliest")
        async for record in subscription:
            subscription.acknowledge(record)
            found.append(record)
            ends -= record.value == END
            if not ends:
                break
    return found


def stored(store: MqttStore, device: Device) -> list[PushRecord]:
    """Publish the last message of each scale; return the records before them."""
    count = len(device.acknowledged)
    for number in range(SCALES):
        device.send(scale(number), END)
    device.wait_acknowledged(count + SCALES)
    records = asyncio.run(read(store.push_port, "scales", SCALES))
    return [record for record in records if record.value != END]


HEADERS = (
    ("content-type", b"text/plain"),
    ("by", b"office"),
    ("raw", b"\xff"),
    ("line", b"a\nb"),
    ("long", b"x" * 70_000),
)


def property_of(message: MQTTMessage, name: str) -> object:
    return getattr(message.properties, name, None)


def is_marked(record: PushRecord) -> bool:
    return ("mqtt.dup", b"1") in record.headers


def publish_to_penstock(store: MqttStore, *records: tuple[bytes, bytes | None]) -> None:
    async def publish() -> None:
        async with await open_push("127.0.0.1", store.push_port) as client:
            for key, value in records:
                await client.publish("prices", value, key=key, headers=HEADERS)

    asyncio.run(publish())


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    page = (EXAMPLE / "README.md").read_text()
    block = page.partition("```console\n")[2].partition("```")[0]
    with mqtt_store(tmp_path) as store:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "PENSTOCK_BOOTSTRAP_SERVER": store.broker.bootstrap,
        }
        for part in block.split("$ ")[1:]:
            command, _, printed = part.partition("\n")
            command = re.sub(r"mosquitto_(pub|sub)", rf"\g<0> -p {store.mqtt_port}", command)
            command = command.replace("penstock ", f"{sys.executable} -m penstock ")
            done = subprocess.run(
                ["bash", "-c", command],
                env=environment,
                capture_output=True,
                text=True,
                timeout=WAIT_SECONDS_MAX,
                check=False,
            )
            assert done.stdout + done.stderr == printed


def test_messages_become_records(tmp_path: Path) -> None:
    with (
        mqtt_store(tmp_path) as store,
        Device(store.mqtt_port) as device,
        Device(store.mqtt_port, is_old=True) as old,
    ):
        device.subscribe("store/17/receipts/#")
        device.subscribe("store/17/prices/#")
        device.send(
            scale(0),
            b'{"grams": 420}',
            ContentType="application/json",
            UserProperty=[("id", "7"), ("unit", "g")],
            ResponseTopic="store/17/receipts/0",
            CorrelationData=b"c7",
        )
        device.send(scale(1), b"forged", ResponseTopic="store/17/prices/tea")
        device.send(scale(2), b"many", UserProperty=[("", "")] * 10_000)
        old.send(scale(1), b"\x00\xff")
        old.send(scale(2), b"", qos=0)
        device.send("elsewhere/17/scales/0", b"not ours")
        device.wait_acknowledged(4)
        old.wait_acknowledged(2)
        records = stored(store, device)
        device.send(scale(0), b"last", ResponseTopic="store/17/receipts/last")
        device.wait(
            lambda: any(one.topic.endswith("last") for one in device.received),
            "no receipt came",
        )

    by_value = {record.value: record for record in records}
    assert set(by_value) == {b'{"grams": 420}', b"forged", b"many", b"\x00\xff", b""}
    assert by_value[b"many"].headers[0] == ("mqtt.left_out", b"9900")
    first = by_value[b'{"grams": 420}']
    assert first.key == scale(0).encode()
    assert list(first.headers) == [
        ("content-type", b"application/json"),
        ("id", b"7"),
        ("unit", b"g"),
    ]
    assert list(by_value[b"\x00\xff"].headers) == []
    receipt, _last = device.received
    assert property_of(receipt, "CorrelationData") == b"c7"
    assert json.loads(receipt.payload) == {
        "topic": "scales",
        "partition": first.partition,
        "offset": first.offset,
    }


def test_records_become_messages(tmp_path: Path) -> None:
    with mqtt_store(tmp_path) as store:
        publish_to_penstock(
            store,
            (b"tea", b"420"),
            (b"a+b", b"1"),
            (b"\xff", b"2"),
            (b"a\nb", b"3"),
            (b"large", b"x" * 600_000),
            (b"milk", b"119"),
        )
        with Device(store.mqtt_port) as shelf:
            shelf.subscribe("store/17/prices/#")
            shelf.wait(lambda: len(shelf.received) >= 2, "the prices did not come")
            found = {one.topic: one for one in shelf.received}
            assert {topic: one.payload for topic, one in found.items()} == {
                "store/17/prices/tea": b"420",
                "store/17/prices/milk": b"119",
            }
            tea = found["store/17/prices/tea"]
            assert property_of(tea, "ContentType") == "text/plain"
            assert property_of(tea, "UserProperty") == [("by", "office")]
            publish_to_penstock(store, (b"tea", None))
            shelf.wait(lambda: len(shelf.received) >= 3, "the deletion did not come")
        with Device(store.mqtt_port) as late:
            late.subscribe("store/17/prices/#")
            late.wait(lambda: bool(late.received), "the retained price did not come")
            assert [one.topic for one in late.received] == ["store/17/prices/milk"]
        skipped = store.bridge.text()
        assert "offset 1 of prices-0 is skipped: the key 'a+b' has a character" in skipped
        assert "offset 2 of prices-0 is skipped: the key b'\\xff' is not UTF-8" in skipped
        assert "offset 4 of prices-0 is skipped: the message has 600," in skipped
        assert skipped.count("is skipped") == 4
        assert store.bridge.terminate() == 0


def test_without_a_kill_nothing_comes_twice(tmp_path: Path) -> None:
    with mqtt_store(tmp_path) as store, Device(store.mqtt_port) as device:
        for number in range(MESSAGES // 4):
            device.send(scale(number), b"%d" % number)
        device.wait_acknowledged(MESSAGES // 4)
        records = stored(store, device)
    assert Counter(record.value for record in records) == Counter(
        b"%d" % number for number in range(MESSAGES // 4)
    )
    assert not any(is_marked(record) for record in records)
    for number in range(SCALES):
        values = [int(one.value or b"") for one in records if one.key == scale(number).encode()]
        assert values == sorted(values)


def test_messages_wait_for_a_bridge_that_is_stopped(tmp_path: Path) -> None:
    """More than Mosquitto queues by default, and over a restart of Mosquitto in order."""
    with mqtt_store(tmp_path) as store, Device(store.mqtt_port) as device:
        assert store.bridge.terminate() == 0
        for number in range(1_500):
            device.send(scale(number), b"%d" % number)
        device.wait_acknowledged(1_500)
        assert store.mosquitto.terminate() == 0
        store.start_mosquitto()
        store.start_bridge()
        records = stored(store, device)
    assert "resumed session" in store.bridge.text()
    counts = Counter(int(record.value or b"") for record in records)
    assert counts == Counter(range(1_500))


@pytest.mark.parametrize("name", ["bridge", "broker"])
def test_each_acknowledged_message_survives(name: str, tmp_path: Path) -> None:
    """The order is not compared: Mosquitto 2.0.11 changes it in a resumed session."""
    with mqtt_store(tmp_path) as store, Device(store.mqtt_port) as device:
        for begin in range(0, MESSAGES, BLOCK):
            for number in range(begin, begin + BLOCK):
                device.send(scale(number), b"%d" % number)
            if begin < LAST_BLOCK:
                device.wait_acknowledged(begin + BLOCK // 2)
                store.kill(name)
            device.wait_acknowledged(begin + BLOCK)
        records = stored(store, device)

    assert {str(code) for code in device.acknowledged.values()} == {"Success"}
    check(records, name)
    seen: set[bytes | None] = set()
    for record in records:
        assert record.value not in seen or is_marked(record)
        seen.add(record.value)


def check(records: list[PushRecord], name: str) -> None:
    """Nothing is lost, and no message that was sent after the last kill comes twice."""
    counts = Counter(int(record.value or b"") for record in records)
    assert set(counts) == set(range(MESSAGES))
    print(f"{name}: {len(records) - MESSAGES} duplicates of {MESSAGES:,} messages")
    assert all(number < LAST_BLOCK for number, count in counts.items() if count > 1)


class CarefulDevice:
    """Sends a message again until it has the receipt of the bridge."""

    def __init__(self, device: Device) -> None:
        self._device = device
        device.subscribe("store/17/receipts/0")
        self.receipts: dict[int, tuple[int, int]] = {}
        """Partition and offset by message."""
        self._read = 0

    def has(self, count: int) -> bool:
        """Return whether there are receipts for this number of messages."""
        for one in self._device.received[self._read :]:
            placed = json.loads(one.payload)
            correlation = property_of(one, "CorrelationData")
            assert isinstance(correlation, bytes)
            self.receipts[int(correlation)] = (placed["partition"], placed["offset"])
            self._read += 1
        return len(self.receipts) >= count

    def send(self, block: range) -> None:
        """Send messages, at most 50 without a receipt, until all have one."""
        for begin in range(block.start, block.stop, 50):
            batch = range(begin, begin + 50)
            while missing := [number for number in batch if number not in self.receipts]:
                for number in missing:
                    self._device.send(
                        scale(number),
                        b"%d" % number,
                        ResponseTopic="store/17/receipts/0",
                        CorrelationData=b"%d" % number,
                    )
                self._device.is_soon(partial(self.has, batch.stop), RESEND_SECONDS)


def test_each_message_with_a_receipt_survives_a_kill_of_mosquitto(tmp_path: Path) -> None:
    with (
        mqtt_store(tmp_path) as store,
        Device(store.mqtt_port) as device,
        ThreadPoolExecutor(1) as threads,
    ):
        careful = CarefulDevice(device)
        for begin in range(0, MESSAGES, BLOCK):
            sending = threads.submit(careful.send, range(begin, begin + BLOCK))
            if begin < LAST_BLOCK:
                device.wait(partial(careful.has, begin + BLOCK // 2), "receipts are missing")
                store.kill("mosquitto")
            sending.result(timeout=WAIT_SECONDS_MAX)
        records = stored(store, device)

    check(records, "mosquitto")
    by_place = {(one.partition, one.offset): one.value for one in records}
    assert len(careful.receipts) == MESSAGES
    for number, place in careful.receipts.items():
        assert by_place[place] == b"%d" % number


@pytest.mark.parametrize("name", ["bridge", "broker"])
def test_each_record_reaches_a_device(name: str, tmp_path: Path) -> None:
    count = 600
    with mqtt_store(tmp_path) as store, Device(store.mqtt_port) as shelf:
        shelf.subscribe("store/17/prices/#")
        for begin in range(0, count, 200):
            records = [(b"p%d" % number, b"%d" % number) for number in range(begin, begin + 200)]
            publish_to_penstock(store, *records)
            shelf.wait(lambda: len(shelf.received) > begin, "no price came")  # noqa: B023
            store.kill(name)
        shelf.wait(
            lambda: len({one.payload for one in shelf.received}) == count, "prices are missing"
        )
        topics = [one.topic for one in shelf.received]
        print(f"{name}: {len(topics) - count} duplicates of {count} records")
        assert list(dict.fromkeys(topics)) == [f"store/17/prices/p{n}" for n in range(count)]
        asyncio.run(wait_committed(store, count))


async def wait_committed(store: MqttStore, offset: int) -> None:
    """Wait until the group has committed this offset: nothing is delivered again."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while True:
            async with await open_push("127.0.0.1", store.push_port) as client:
                subscription = await client.subscribe("prices", group="mqtt-bridge")
                if subscription.positions == {0: offset}:
                    return


def test_a_refused_message_stays_in_mosquitto(tmp_path: Path) -> None:
    with mqtt_store(tmp_path) as store, Device(store.mqtt_port) as device:
        store.bridge.terminate()
        store.broker.stop()
        store.write("penstock.toml", lambda text: text.replace(*SMALL))
        store.broker.start()
        store.start_bridge()
        device.send(scale(0), b"x" * 5_000)
        device.wait_acknowledged(1)
        assert store.bridge.wait_ended() == 1
        assert "has 5,000 bytes and came to 'store/17/scales/0'" in store.bridge.text()

        store.broker.stop()
        store.write("penstock.toml", lambda text: text)
        store.broker.start()
        store.start_bridge()
        (record,) = stored(store, device)
        assert record.value == b"x" * 5_000
        assert is_marked(record)


ACCESS = """
user bridge
topic read store/+/scales/#
topic write store/17/prices/milk
user scale
topic write store/17/scales/#
"""


def secure(store: MqttStore) -> None:
    """Let Mosquitto demand TLS and passwords, and give the bridge its own."""
    folder = store.folder
    authority = CertificateAuthority(folder / "authority")
    server = authority.server()
    (folder / "users").write_text("bridge:right\nscale:kilo\n")
    (folder / "bridge.password").write_text("right\n")
    (folder / "access").write_text(ACCESS)
    done = subprocess.run(["mosquitto_passwd", "-U", str(folder / "users")], check=False)
    assert done.returncode == 0
    more = f"cafile {authority.certificate}\ncertfile {server.chain}\nkeyfile {server.key}\n"
    more += f"password_file {folder}/users\nacl_file {folder}/access\n"
    store.write("mosquitto.conf", lambda text: text.replace("allow_anonymous true\n", more))
    login = f'user = "bridge"\npassword_file = "{folder}/bridge.password"\n'
    login += f'ca_file = "{authority.certificate}"\n'
    store.write("bridge.toml", lambda text: text.replace("[mqtt]\n", "[mqtt]\n" + login))


def test_a_secured_mosquitto(tmp_path: Path) -> None:
    with mqtt_store(tmp_path, secure) as store:
        device = Device(store.mqtt_port)
        device.client.tls_set(str(tmp_path / "authority" / "authority.pem"))
        device.client.username_pw_set("scale", "kilo")
        with device:
            for number in range(300):
                device.send(scale(number), b"%d" % number * 100)
            device.wait_acknowledged(300)
            assert len(stored(store, device)) == 300

        publish_to_penstock(store, (b"milk", b"119"), (b"tea", b"420"))
        assert store.bridge.wait_ended() == 1
        text = store.bridge.text()
        assert "Mosquitto refused the record at offset 1 of prices-0: Not authorized" in text

        (tmp_path / "bridge.password").write_text("wrong\n")
        store.bridge.start("Mosquitto refused the client 'store-17-")
        assert store.bridge.wait_ended() == 1
