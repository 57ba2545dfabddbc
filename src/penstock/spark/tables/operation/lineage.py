"""`LineageEmitter`: sends OpenLineage events to a file or a service, beside the pipeline.

Guarantees: an event never delays or fails a pipeline. Events wait in a queue of at most
`QUEUE_MAX`; a thread sends them in order, each once. An event that cannot be sent, or does not fit
into the queue, is dropped and counted; the first one of a row is a warning in the log. The end of a
command waits for the last events at most `CLOSE_SECONDS_MAX`.

The names in the environment are OpenLineage's own, so a platform that sets them for other jobs
gets the events of pipelines, too. A destination in the definition has priority.
"""

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Condition, Thread
from typing import Final, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from penstock.core.errors import ConfigError
from penstock.spark.tables.definition.operation_keys import LINEAGE_REMEDY, is_lineage_address
from penstock.spark.tables.operation.lineage_events import Document

LOGGER: Final = logging.getLogger(__name__)
QUEUE_MAX: Final = 100
"""An event a minute and the two ends of a run: an hour of a service that is unreachable."""
SEND_SECONDS_MAX: Final = 5.0
CLOSE_SECONDS_MAX: Final = 5.0
ENDPOINT_DEFAULT: Final = "api/v1/lineage"
NAMESPACE_DEFAULT: Final = "default"

Send = Callable[[Document], None]


class Destination(NamedTuple):
    """The place of the events."""

    url: str
    api_key: str = ""
    namespace: str = NAMESPACE_DEFAULT


def destination_of(given: str | None, environment: Mapping[str, str]) -> Destination | None:
    """Return the destination in the definition or the environment; None without one."""
    if environment.get("OPENLINEAGE_DISABLED", "").lower() == "true":
        return None
    namespace = environment.get("OPENLINEAGE_NAMESPACE") or NAMESPACE_DEFAULT
    key = environment.get("OPENLINEAGE_API_KEY", "")
    base = given or environment.get("OPENLINEAGE_URL")
    if not base:
        return None
    if not is_lineage_address(base):
        raise ConfigError(f"OPENLINEAGE_URL is neither a file nor an address. {LINEAGE_REMEDY}")
    if urlsplit(base).scheme == "file":
        return Destination(base, "", namespace)
    endpoint = environment.get("OPENLINEAGE_ENDPOINT") or ENDPOINT_DEFAULT
    is_whole = given is not None and urlsplit(base).path.strip("/")
    whole = base if is_whole else urljoin(f"{base.rstrip('/')}/", endpoint)
    return Destination(whole, key, namespace)


def sender_to(destination: Destination) -> Send:
    """Return the function that sends one event there; it raises `OSError` if it cannot."""
    parts = urlsplit(destination.url)
    if parts.scheme == "file":
        path = unquote(parts.path)

        def to_file(document: Document) -> None:
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(json.dumps(document, separators=(",", ":")) + "\n")

        return to_file
    headers = {"Content-Type": "application/json"}
    if destination.api_key:
        headers["Authorization"] = f"Bearer {destination.api_key}"

    opener = build_opener(_NoRedirect)

    def to_service(document: Document) -> None:
        data = json.dumps(document, separators=(",", ":")).encode()
        request = Request(destination.url, data, headers, method="POST")  # noqa: S310 - http(s)
        with opener.open(request, timeout=SEND_SECONDS_MAX) as answer:
            answer.read(1_024)

    return to_service


class _NoRedirect(HTTPRedirectHandler):
    """Fails on a redirect: it would lose the event, and send the key to another host."""

    def redirect_request(self, *_given: object) -> None:
        """Return no request, so that the answer is an error."""


class LineageEmitter:
    """A queue of events, and the thread that sends them."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: deque[Document] = deque()
        self._is_sending = False
        self._is_closed = False
        self._has_failed = False
        self.dropped = 0
        """The number of events that were not delivered."""
        self._changed = Condition()
        self._thread = Thread(target=self._run, name="penstock-lineage", daemon=True)
        self._thread.start()

    def emit(self, document: Document) -> None:
        """Queue one event; return immediately. Without room, the oldest event is dropped."""
        with self._changed:
            if self._is_closed:
                return
            if len(self._waiting) >= QUEUE_MAX:
                # The newest events have the totals of the run; the oldest say least.
                self._waiting.popleft()
                self.dropped += 1
            self._waiting.append(document)
            self._changed.notify_all()

    def close(self, timeout_seconds: float = CLOSE_SECONDS_MAX) -> None:
        """Send the waiting events within the timeout, and end."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._waiting and not self._is_sending, timeout_seconds
            )
            self._is_closed = True
            self.dropped += len(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        # A request may be in flight; the thread is a daemon, so it blocks nothing.
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return
                document = self._waiting.popleft()
                self._is_sending = True
            problem = self._problem_with(document)
            with self._changed:
                self._is_sending = False
                self._report(problem)
                self._changed.notify_all()

    def _problem_with(self, document: Document) -> str:
        try:
            self._send(document)
        except Exception as error:  # noqa: BLE001 - a service fails in many ways, and none matters
            return f"{type(error).__name__}: {error}"
        return ""

    def _report(self, problem: str) -> None:
        if not problem:
            self._has_failed = False
            return
        self.dropped += 1
        if not self._has_failed:
            self._has_failed = True
            LOGGER.warning(
                "an OpenLineage event was not delivered: %s. The pipeline goes on.", problem[:300]
            )
