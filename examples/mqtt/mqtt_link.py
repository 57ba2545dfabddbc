"""`MqttLink`: one connection to Mosquitto, with paho-mqtt on the event loop of the bridge.

Guarantees: a link is one connection, never two. An acknowledgement is sent on the connection that
delivered its message, or never: packet numbers of an old connection mean other messages on a new
one. At most `in_flight` messages are received without an acknowledgement (Receive Maximum), and at
most that number is published without one, or the lower number of Mosquitto. Nothing is read while
output waits, nor while twice `in_flight` messages wait: that bounds messages with QoS 0 too.

It is NOT a client that connects again: the bridge opens a new link.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import struct
from collections.abc import Callable, Iterable
from typing import Final

from bridge_settings import Mqtt, password, tls
from mqtt_mapping import Message
from paho.mqtt import MQTTException
from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

CONNECT_SECONDS_MAX: Final = 10.0
CLOSE_SECONDS_MAX: Final = 2.0
KEEP_ALIVE_SECONDS: Final = 20
SESSION_TAKEN_OVER: Final = 0x8E
SERVER_CODES_TEMPORARY: Final = {0x88, 0x89, 0x8B, 0x97, 0x9F}
"""Server unavailable, busy, shutting down; quota exceeded; too many connections."""
PACKET_HEAD_BYTES: Final = 16
"""More than fixed header, packet number and lengths of a PUBLISH."""


class LinkError(Exception):
    """The connection to Mosquitto failed or ended; a new one may succeed."""


class RefusedError(Exception):
    """Mosquitto or Penstock refuses a message or a client, and will do so again."""


def properties_for(packet: int, **values: object) -> Properties:
    """Return the properties of a packet; None is left out."""
    properties = Properties(packet)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        if value is not None:
            setattr(properties, name, value)
    return properties


class Delivery:
    """A received message; `acknowledge` it when its record is on disk."""

    def __init__(self, link: "MqttLink", message: Message, number: int, qos: int) -> None:
        self.message = message
        self._link, self._number, self._qos = link, number, qos

    def acknowledge(self) -> None:
        """Send the PUBACK, if the connection still exists."""
        self._link.settle(self._number, self._qos)


class MqttLink:
    """One connection; create it with `connect`."""

    def __init__(
        self,
        settings: Mqtt,
        role: str,
        session_seconds: int = 0,
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self.client_id = f"{settings.client_id}-{role}"
        self._session_seconds = session_seconds
        """0: Mosquitto keeps nothing for this client."""
        self._on_delivery = on_delivery
        self._client = Client(
            CallbackAPIVersion.VERSION2,
            self.client_id,
            protocol=MQTTProtocolVersion.MQTTv5,
            manual_ack=True,
            reconnect_on_failure=False,
        )
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[Exception] = self._loop.create_future()
        self._subscribed: asyncio.Future[list[ReasonCode]] = self._loop.create_future()
        self._published: dict[int, asyncio.Future[ReasonCode]] = {}
        self._places = asyncio.Semaphore(settings.in_flight)
        self._packet_bytes_max: int | None = None
        self._waiting = 0
        """Received messages that are not settled."""
        self._is_writing = False
        self._is_closing = False
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.has_session = False
        """Whether Mosquitto had a session of this client."""

    # --- Opening and closing ---

    async def connect(self) -> None:
        """Connect; raise `LinkError` or `RefusedError`."""
        client, settings = self._client, self._settings
        client.connect_timeout = CONNECT_SECONDS_MAX
        client.max_inflight_messages_set(settings.in_flight)
        if settings.user:
            client.username_pw_set(settings.user, password(settings.password_file))
        context = tls(settings.ca_file)
        if context is not None:
            client.tls_set_context(context)
        properties = properties_for(
            PacketTypes.CONNECT,
            SessionExpiryInterval=self._session_seconds,
            ReceiveMaximum=settings.in_flight,
        )
        address = f"{settings.host}:{settings.port}"
        try:
            await asyncio.to_thread(
                client.connect,
                settings.host,
                settings.port,
                KEEP_ALIVE_SECONDS,
                clean_start=self._session_seconds == 0,
                properties=properties,
            )
        except OSError as error:
            raise LinkError(f"cannot connect to Mosquitto at {address}: {error}") from error
        opened = client.socket()
        if opened is None:
            raise LinkError(f"Mosquitto at {address} closed the connection at once")
        assert isinstance(opened, socket.socket), "a transport of TCP"
        self._socket = opened
        self._listen(client)
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await self._opened
        except TimeoutError:
            raise LinkError(
                f"Mosquitto at {address} did not answer within {CONNECT_SECONDS_MAX:.0f} s"
            ) from None

    def _listen(self, client: Client) -> None:
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        client.on_socket_register_write = lambda *_: self._write(wanted=True)
        client.on_socket_unregister_write = lambda *_: self._write(wanted=False)
        client.on_socket_close = lambda *_: self._forget_socket()
        self._read_or_pause()
        self._tick()

    async def wait_ended(self) -> None:
        """Wait for the end of the connection; raise its reason."""
        raise await asyncio.shield(self._ended)

    async def close(self) -> None:
        """End the connection in order; Mosquitto keeps the session for its time.

        A socket that is closed with unread bytes is reset, and Mosquitto then forgets
        acknowledgements that it has not read. So a copy of the socket is read to its end.
        """
        if self._socket is not None:
            self._is_closing = True
            self._read_or_pause()
            copy = socket.socket(fileno=os.dup(self._socket.fileno()))
            copy.settimeout(0)
            with copy, contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS_MAX):
                    self._client.disconnect()
                    await asyncio.shield(self._ended)
                    copy.shutdown(socket.SHUT_WR)
                    while await self._loop.sock_recv(copy, 65_536):
                        pass
        self._finish(LinkError("the bridge closed the connection"))

    def _finish(self, reason: Exception) -> None:
        sock = self._socket
        self._forget_socket()
        if sock is not None:
            sock.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._ended.done():
            self._ended.set_result(reason)
        if not self._opened.done():
            self._opened.set_exception(reason)
            self._opened.exception()  # read: nothing waits for it after a cancelled connect

    # --- Requests ---

    async def subscribe(self, filters: Iterable[str]) -> None:
        """Receive messages with QoS 1; retained ones only if the subscription is new."""
        wanted = list(filters)
        options = SubscribeOptions(
            qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB, noLocal=True
        )
        self._client.subscribe([(one, options) for one in wanted])
        for one, code in zip(wanted, await self._subscribed, strict=True):
            if code.is_failure:
                raise RefusedError(f"Mosquitto refused the subscription of '{one}': {code}")
            if code.value != 1:
                raise RefusedError(f"Mosquitto granted QoS {code.value} for '{one}', not QoS 1")

    async def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        retain: bool,
        content_type: str | None,
        user_properties: list[tuple[str, str]],
    ) -> asyncio.Future[ReasonCode]:
        """Publish with QoS 1 when there is room; return the future of the PUBACK."""
        properties = properties_for(
            PacketTypes.PUBLISH, ContentType=content_type, UserProperty=user_properties or None
        )
        packed: bytes = properties.pack()  # type: ignore[no-untyped-call]
        size = PACKET_HEAD_BYTES + len(topic.encode()) + len(packed) + len(payload)
        if self._packet_bytes_max is not None and size > self._packet_bytes_max:
            raise ValueError(
                f"the message has {size:,} bytes, and Mosquitto accepts "
                f"{self._packet_bytes_max:,}; raise max_packet_size of Mosquitto"
            )
        await self._places.acquire()
        info = self._client.publish(topic, payload, qos=1, retain=retain, properties=properties)
        if info.rc is not MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise LinkError(f"the connection to Mosquitto was lost: {info.rc.name}")
        return self._published.setdefault(info.mid, self._loop.create_future())

    def send_receipt(self, topic: str, payload: bytes, correlation: bytes | None) -> None:
        """Publish with QoS 0: a device without its receipt sends its message again."""
        properties = properties_for(PacketTypes.PUBLISH, CorrelationData=correlation)
        if self._socket is not None:
            self._client.publish(topic, payload, qos=0, properties=properties)

    def settle(self, number: int, qos: int) -> None:
        """Send the PUBACK of a message, and read on; for `Delivery` only."""
        self._waiting -= 1
        if self._socket is not None:
            if qos:
                self._client.ack(number, qos)
            self._read_or_pause()

    # --- Called by paho ---

    def _on_connect(
        self,
        _client: Client,
        _data: object,
        flags: ConnectFlags,
        code: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if code.is_failure:
            temporary = code.value in SERVER_CODES_TEMPORARY
            kind = LinkError if temporary else RefusedError
            self._finish(kind(f"Mosquitto refused the client '{self.client_id}': {code}"))
            return
        self.has_session = flags.session_present
        self._packet_bytes_max = getattr(properties, "MaximumPacketSize", None)
        places = min(self._settings.in_flight, getattr(properties, "ReceiveMaximum", 65_535))
        self._places = asyncio.Semaphore(places)
        if not self._opened.done():
            self._opened.set_result(None)

    def _on_disconnect(
        self, _client: Client, _data: object, flags: DisconnectFlags, code: ReasonCode, _p: object
    ) -> None:
        if code.value == SESSION_TAKEN_OVER:
            self._finish(
                RefusedError(
                    f"another client has the id '{self.client_id}': give each bridge its own "
                    "mqtt.client_id"
                )
            )
        else:
            self._finish(
                LinkError(
                    f"the connection to Mosquitto ended: {code} (so it does if another client "
                    f"connects with the id '{self.client_id}')"
                )
            )

    def _on_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        self._waiting += 1
        properties = message.properties
        found = Message(
            message.topic,
            bytes(message.payload),
            is_duplicate=message.dup,
            is_retained=message.retain,
            content_type=getattr(properties, "ContentType", None),
            user_properties=getattr(properties, "UserProperty", ()),
            response_topic=getattr(properties, "ResponseTopic", None),
            correlation=getattr(properties, "CorrelationData", None),
        )
        assert self._on_delivery is not None, "a link without a receiver has no subscription"
        self._on_delivery(Delivery(self, found, message.mid, message.qos))

    def _on_publish(
        self, _client: Client, _data: object, number: int, code: ReasonCode, _p: object
    ) -> None:
        answer = self._published.pop(number, None)
        if answer is not None:
            self._places.release()
            if not answer.done():
                answer.set_result(code)

    def _on_subscribe(
        self, _client: Client, _data: object, _number: int, codes: list[ReasonCode], _p: object
    ) -> None:
        if not self._subscribed.done():
            self._subscribed.set_result(codes)

    # --- Called by the event loop ---

    def _read_or_pause(self) -> None:
        sock = self._socket
        if sock is None:
            return
        is_full = self._waiting >= 2 * self._settings.in_flight
        if self._is_closing or self._is_writing or is_full:
            self._loop.remove_reader(sock)
        else:
            self._loop.add_reader(sock, self._readable)
            if isinstance(sock, ssl.SSLSocket) and sock.pending():
                self._loop.call_soon(self._readable)

    def _readable(self) -> None:
        if self._socket is None:
            return
        try:
            self._client.loop_read()
        except (MQTTException, ValueError, IndexError, struct.error) as error:
            self._finish(LinkError(f"Mosquitto sent a wrong packet: {error}"))
        self._read_or_pause()

    def _write(self, *, wanted: bool) -> None:
        self._is_writing = wanted
        if self._socket is None:
            return
        if wanted:
            self._loop.add_writer(self._socket, self._client.loop_write)
        else:
            self._loop.remove_writer(self._socket)
        self._read_or_pause()

    def _tick(self) -> None:
        """Keep the connection alive, and notice its end."""
        self._client.loop_misc()
        if not self._ended.done():
            self._timer = self._loop.call_later(1.0, self._tick)

    def _forget_socket(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket = None
