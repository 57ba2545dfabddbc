"""A small client of MQTT 3.1.1: publish and subscribe with QoS 1, over one socket."""

import socket
import struct

TIMEOUT_SECONDS = 3.0
KEEPALIVE_SECONDS = 60
CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, PINGREQ = 1, 2, 3, 4, 8, 9, 12


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">H", len(data)) + data


class MqttClient:
    """One connection with a session that lasts. A failure raises `OSError`; connect again."""

    def __init__(self, port: int, client_id: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
        self._file = self._socket.makefile("rb")
        self._last_id = 0
        flags = 0  # not a clean session
        body = _text("MQTT") + bytes((4, flags)) + struct.pack(">H", KEEPALIVE_SECONDS)
        self._send(CONNECT << 4, body + _text(client_id))
        kind, answer = self._packet()
        if kind >> 4 != CONNACK or answer[1] != 0:
            raise OSError("the broker refuses the connection")

    def _send(self, kind: int, body: bytes) -> None:
        length, head = len(body), bytearray((kind,))
        while True:
            byte, length = length & 0x7F, length >> 7
            head.append(byte | (0x80 if length else 0))
            if not length:
                break
        self._socket.sendall(bytes(head) + body)

    def _packet(self) -> tuple[int, bytes]:
        head = self._file.read(1)
        if not head:
            raise OSError("the broker closed the connection")
        length = shift = 0
        while True:
            byte = self._file.read(1)
            if not byte:
                raise OSError("the broker closed the connection")
            length |= (byte[0] & 0x7F) << shift
            shift += 7
            if byte[0] < 0x80:
                break
        body = self._file.read(length)
        if len(body) < length:
            raise OSError("the broker closed the connection")
        return head[0], body

    def publish(self, topic: str, content: bytes) -> None:
        """Publish with QoS 1, and wait for the acknowledgement."""
        self._last_id = self._last_id % 65_535 + 1
        head = _text(topic) + struct.pack(">H", self._last_id)
        self._send(PUBLISH << 4 | 2, head + content)
        while True:
            kind, body = self._packet()
            if kind >> 4 == PUBACK and struct.unpack(">H", body[:2])[0] == self._last_id:
                return

    def subscribe(self, topic: str) -> None:
        """Subscribe with QoS 1."""
        self._send(SUBSCRIBE << 4 | 2, struct.pack(">H", 1) + _text(topic) + b"\x01")

    def next_message(self) -> bytes | None:
        """Return the content of the next message, acknowledged; None if none came in time."""
        try:
            kind, body = self._packet()
        except TimeoutError:
            # The file cannot be read after a timeout: a new one continues at the next packet.
            self._file = self._socket.makefile("rb")
            self._send(PINGREQ << 4, b"")
            return None
        if kind >> 4 != PUBLISH:
            return None
        length = struct.unpack(">H", body[:2])[0]
        content = body[2 + length :]
        if kind & 6:
            self._send(PUBACK << 4, content[:2])
            content = content[2:]
        return content

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self._socket.close()
