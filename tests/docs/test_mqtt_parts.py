"""Parts of the MQTT bridge: mapping, settings, and its connection against a scripted Mosquitto."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
from bridge_settings import Mqtt, SettingsError, load, parse
from mqtt_link import Delivery, LinkError, MqttLink, RefusedError
from mqtt_mapping import (
    MappingError,
    Message,
    UpRoute,
    check_filter,
    filter_of_template,
    headers_of,
    is_answered,
    matches,
    overlap,
    properties_of,
    route_of,
    topic_of,
)

from tests.docs.mqtt_stage import EXAMPLE

CONNACK = b"\x20\x03\x00\x00\x00"
PUBACK_OF_7 = b"\x40\x02\x00\x07"
WAIT_SECONDS_MAX = 20.0


# --- Mapping ---


@pytest.mark.parametrize(
    ("topic", "wanted", "is_match"),
    [
        ("store/17/scales/4", "store/+/scales/#", True),
        ("store/17/scales", "store/+/scales/#", True),
        ("store/17/scales/4/raw", "store/+/scales/#", True),
        ("store/17/doors/4", "store/+/scales/#", False),
        ("store/17/2/scales/4", "store/+/scales/#", False),
        ("store", "store/+", False),
        ("store/", "store/+", True),
        ("a/b", "a/b", True),
        ("a/b/c", "a/b", False),
        ("a", "#", True),
    ],
)
def test_a_topic_matches_a_filter(topic: str, wanted: str, *, is_match: bool) -> None:
    assert matches(topic, wanted) is is_match


@pytest.mark.parametrize(
    ("one", "other", "is_overlap"),
    [
        ("a/+", "+/b", True),
        ("a/+/c", "a/b/+", True),
        ("a/#", "a", True),
        ("a/+", "b/+", False),
        ("a/+", "a/b/c", False),
        ("a/b/#", "a/c/#", False),
        ("#", "x/y", True),
    ],
)
def test_filters_overlap(one: str, other: str, *, is_overlap: bool) -> None:
    assert overlap(one, other) is is_overlap
    assert overlap(other, one) is is_overlap


@pytest.mark.parametrize("text", ["", "a/b+", "a/#/b", "$SYS/#", "a\0b", "a#"])
def test_a_wrong_filter_is_refused(text: str) -> None:
    with pytest.raises(MappingError):
        check_filter(text)


def test_a_route_is_found() -> None:
    routes = (UpRoute("store/+/scales/#", "scales"), UpRoute("store/+/doors", "doors"))
    found = route_of("store/1/doors", routes)
    assert found is not None
    assert found.topic == "doors"
    assert route_of("store/1/lights", routes) is None


def test_headers_of_a_message() -> None:
    message = Message(
        "t",
        b"",
        is_duplicate=True,
        is_retained=True,
        content_type="text/plain",
        user_properties=[("mqtt.dup", "no"), ("id", "7"), ("id", "8")],
    )
    assert headers_of(message) == (
        ("mqtt.dup", b"1"),
        ("mqtt.retain", b"1"),
        ("content-type", b"text/plain"),
        ("mqtt.dup", b"no"),
        ("id", b"7"),
        ("id", b"8"),
    )
    assert headers_of(Message("t", b"")) == ()


def test_the_headers_of_a_message_are_bounded() -> None:
    headers = headers_of(Message("t", b"", user_properties=[("n", str(n)) for n in range(150)]))
    assert headers[0] == ("mqtt.left_out", b"50")
    assert headers[1:] == tuple(("n", b"%d" % n) for n in range(100))


@pytest.mark.parametrize(
    ("topic", "allowed", "is_sent"),
    [
        ("store/17/receipts/4", "store/+/receipts/#", True),
        ("store/17/prices/tea", "store/+/receipts/#", False),
        ("store/+/receipts/4", "store/+/receipts/#", False),
        ("#", "store/+/receipts/#", False),
        ("store/17/receipts/\n", "store/+/receipts/#", False),
        ("store/17/receipts/4", "", False),
        (None, "#", False),
    ],
)
def test_receipts_go_to_allowed_topics(topic: str | None, allowed: str, *, is_sent: bool) -> None:
    assert is_answered(topic, allowed) is is_sent


def test_properties_of_a_record() -> None:
    headers: list[tuple[str, bytes | None]] = [
        ("content-type", b"a"),
        ("content-type", b"b"),
        ("none", None),
    ]
    headers += [("raw", b"\xff"), ("line", b"a\nb"), ("\x85", b""), ("long", b"x" * 65_536)]
    assert properties_of(headers) == ("a", [("content-type", "b"), ("none", "")])


def test_topics_of_records() -> None:
    assert topic_of("store/17/prices/{key}", b"tea") == "store/17/prices/tea"
    assert topic_of("store/17/alarms", None) == "store/17/alarms"
    assert filter_of_template("store/17/p-{key}/x") == "store/17/#"


@pytest.mark.parametrize(
    "key", [None, b"", b"a+b", b"#", b"a\0b", b"\xff", b"x" * 70_000, b"a\nb", b"\xef\xbf\xbf"]
)
def test_a_key_that_is_no_topic_is_refused(key: bytes | None) -> None:
    with pytest.raises(MappingError):
        topic_of("prices/{key}", key)


# --- Settings ---


def test_the_settings_of_the_example_are_valid() -> None:
    settings = load(EXAMPLE / "bridge.toml")
    assert [route.topic for route in settings.up] == ["scales"]
    assert settings.down[0].retain
    assert settings.mqtt.in_flight == 100
    text = (EXAMPLE / "mosquitto.conf").read_text()
    assert "max_inflight_messages 100\n" in text


UP = {"filter": "a/+", "topic": "t"}


@pytest.mark.parametrize(
    ("found", "part"),
    [
        ({}, "no route"),
        ({"extra": 1}, "unknown section 'extra'"),
        ({"up": [UP], "mqtt": {"prot": 1}}, "unknown setting mqtt.prot"),
        ({"up": [UP], "mqtt": {"port": "1883"}}, "mqtt.port is '1883'"),
        ({"up": [UP], "mqtt": {"port": True}}, "mqtt.port is True"),
        ({"up": [UP], "mqtt": {"in_flight": 0}}, "mqtt.in_flight is 0"),
        ({"up": [UP], "mqtt": {"in_flight": 1_001}}, "it must be 1 to 1,000"),
        ({"up": [UP], "mqtt": {"receipts": "a/b"}}, "overlap"),
        ({"up": UP}, "write [[up]]"),
        ({"up": [{"filter": "a"}]}, "topic"),
        ({"up": [UP, {"filter": "+/b", "topic": "u"}]}, "overlap"),
        ({"up": [UP], "down": [{"topic": "p", "mqtt_topic": "a/{key}"}]}, "circulate"),
        ({"down": [{"topic": "p", "mqtt_topic": "a/#"}]}, "has a wildcard"),
        ({"down": [{"topic": "p", "mqtt_topic": one} for one in ("a", "b")]}, "two routes"),
    ],
)
def test_wrong_settings_are_refused(found: dict[str, object], part: str) -> None:
    with pytest.raises(SettingsError) as error:
        parse(found)
    assert part in str(error.value)


def test_a_file_that_is_not_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("mqtt = [")
    with pytest.raises(SettingsError, match="cannot read"):
        load(tmp_path / "x.toml")


# --- The connection ---


Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def publish_packet(number: int, qos: int) -> bytes:
    body = b"\x00\x01t" + (struct.pack(">H", number) if qos else b"") + b"\x00" + b"v"
    return bytes([0x30 | qos << 1, len(body)]) + body


async def turns() -> None:
    """Give the event loop turns, more than the messages of a test."""
    for _ in range(500):
        await asyncio.sleep(0)


def run_link(script: Script, use: Callable[[Mqtt], Awaitable[None]]) -> bytes:
    """Run a link against a server that follows a script; return the bytes of the link."""

    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(2)
            await script(reader, writer)
            received.append(await reader.read())
            writer.close()
            served.set_result(None)

        served: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server, asyncio.timeout(WAIT_SECONDS_MAX):
            port = server.sockets[0].getsockname()[1]
            await use(Mqtt(port=port, in_flight=5))
            await served

    received: list[bytes] = []
    asyncio.run(main())
    return received[0]


def test_messages_without_a_bound_of_mqtt_are_not_read_ahead() -> None:
    """Messages with QoS 0, and more QoS 1 messages than Receive Maximum, stay in the socket."""

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        packets = (publish_packet(1 + n, n % 2) for n in range(100))
        writer.write(CONNACK + b"".join(packets))

    async def use(settings: Mqtt) -> None:
        held: list[Delivery] = []
        link = MqttLink(settings, "up", 60, held.append)
        await link.connect()
        seen = 0
        while seen < 100:
            await turns()
            assert len(held) == 2 * settings.in_flight
            seen += len(held)
            for one in held:
                one.acknowledge()
            held.clear()
        await link.close()

    run_link(flood, use)


def test_a_message_of_an_old_connection_is_not_acknowledged() -> None:
    async def cut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CONNACK + publish_packet(7, 1))
        await writer.drain()
        writer.write_eof()

    async def use(settings: Mqtt) -> None:
        held: list[Delivery] = []
        link = MqttLink(settings, "up", 60, held.append)
        await link.connect()
        with pytest.raises(LinkError, match="another client connects with the id"):
            await link.wait_ended()
        held[0].acknowledge()
        await link.close()

    assert PUBACK_OF_7 not in run_link(cut, use)


def test_a_close_keeps_acknowledgements_although_messages_are_unread() -> None:
    """A reset of the connection would let Mosquitto forget acknowledgements."""
    closing = asyncio.Event()
    errors: list[int] = []

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport = cast("asyncio.Transport", writer.transport)
        transport.pause_reading()  # as a Mosquitto that is busy
        writer.write(CONNACK + publish_packet(7, 1) + 1_000 * publish_packet(8, 0))
        await closing.wait()
        await turns()
        errors.append(
            writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        )
        transport.resume_reading()

    async def use(settings: Mqtt) -> None:
        held: list[Delivery] = []
        link = MqttLink(settings, "up", 60, held.append)
        await link.connect()
        await turns()
        held[0].acknowledge()
        closing.set()
        await link.close()

    received = run_link(flood, use)
    assert errors == [0]
    assert PUBACK_OF_7 in received
    assert received.endswith(b"\xe0\x00")  # DISCONNECT


@pytest.mark.parametrize(
    ("packet", "kind", "part"),
    [
        (b"\x20\x03\x00\x87\x00", RefusedError, "Not authorized"),
        (b"\x20\x03\x00\x88\x00", LinkError, "Server unavailable"),
        (CONNACK + b"\xe0\x02\x8e\x00", RefusedError, "give each bridge its own mqtt.client_id"),
        (CONNACK + b"\xe0\x02\x8b\x00", LinkError, "Server shutting down"),
    ],
)
def test_the_end_of_a_connection_has_a_reason(
    packet: bytes, kind: type[Exception], part: str
) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(packet)

    async def use(settings: Mqtt) -> None:
        link = MqttLink(settings, "up", 60)

        async def connect_and_wait() -> None:
            await link.connect()
            await link.wait_ended()

        with pytest.raises(kind, match=part):
            await connect_and_wait()
        await link.close()

    run_link(answer, use)


def test_a_server_that_is_not_there_has_an_error() -> None:
    async def main() -> None:
        link = MqttLink(Mqtt(port=1), "up")
        with pytest.raises(LinkError, match="cannot connect to Mosquitto at"):
            await link.connect()
        await link.close()

    asyncio.run(main())
