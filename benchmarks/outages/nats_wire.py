"""A small client of NATS: publish, request, and the JSON API of JetStream, over one socket."""

import json
import socket
from typing import Any

TIMEOUT_SECONDS = 3.0


class NatsClient:
    """One connection; requests one after another. A failure raises `OSError`; connect again."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
        self._file = self._socket.makefile("rb")
        self._count = 0
        self._inbox = f"_INBOX.{id(self)}"
        if not self._file.readline().startswith(b"INFO"):
            raise OSError("not a NATS server")
        self._send(b'CONNECT {"verbose":false,"headers":true,"lang":"x","version":"1"}\r\n')
        self._send(f"SUB {self._inbox}.* 1\r\n".encode())

    def _send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self._socket.close()

    def request(self, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> bytes:
        """Publish, and return the answer."""
        self._count += 1
        reply = f"{self._inbox}.{self._count}"
        if headers:
            block = "NATS/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n"
            total = len(block) + len(payload)
            head = f"HPUB {subject} {reply} {len(block)} {total}\r\n{block}"
        else:
            head = f"PUB {subject} {reply} {len(payload)}\r\n"
        self._send(head.encode() + payload + b"\r\n")
        while True:
            found, content = self._message()
            if found == reply:
                return content

    def _message(self) -> tuple[str, bytes]:
        """Return subject and content of the next message."""
        while True:
            line = self._file.readline()
            if not line:
                raise OSError("the server closed the connection")
            words = line.decode().split()
            if words[0] == "PING":
                self._send(b"PONG\r\n")
            elif words[0] == "MSG":
                return words[1], self._file.read(int(words[-1]) + 2)[:-2]
            elif words[0] == "HMSG":
                content = self._file.read(int(words[-1]) + 2)[:-2]
                head, body = content[: int(words[-2])], content[int(words[-2]) :]
                if head.startswith(b"NATS/1.0 503"):
                    raise OSError("no responders")
                return words[1], body
            elif words[0] == "-ERR":
                raise OSError(line.decode())

    def api(self, name: str, body: dict[str, Any], domain: str | None = None) -> dict[str, Any]:
        """Call the API of JetStream; raise `OSError` for an error."""
        prefix = "$JS.API" if domain is None else f"$JS.{domain}.API"
        answer = json.loads(self.request(f"{prefix}.{name}", json.dumps(body).encode()))
        if "error" in answer:
            raise OSError(f"{name}: {answer['error']}")
        return dict(answer)
