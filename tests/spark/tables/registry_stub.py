"""A registry in this process, for faults that a real one lacks: errors, loops, nonsense.

It serves prepared answers by path and counts the calls. `test_registry_apicurio.py` tests the
answers of a real registry.
"""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class RegistryStub:
    """Prepared answers, by path: a status and a body."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, object]]] = {}
        self.redirects: dict[str, str] = {}
        self.calls: list[tuple[str, str | None]] = []
        self.address = ""

    def answer(self, path: str, *answers: tuple[int, object]) -> None:
        """One after the other; the last one stays."""
        self.answers[path] = list(answers)

    def next_answer(self, path: str) -> tuple[int, object]:
        waiting = self.answers.get(path, [(404, {"error_code": 40403, "message": "not found"})])
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]


@contextmanager
def registry_stub() -> Iterator[RegistryStub]:
    """A stub that listens as long as the block lasts."""
    stub = RegistryStub()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stub.calls.append((self.path, self.headers.get("Authorization")))
            if self.path in stub.redirects:
                self.send_response(302)
                self.send_header("Location", stub.redirects[self.path])
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            status, body = stub.next_answer(self.path)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its own signature
            """Say nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    stub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
