"""Clients that break rules, and count the broker's reactions: `abuse.py PORT`.

Each kind of abuse runs on its own thread, again and again, and is finished before the client
reports: rejected, dropped and ended connections, by reason. The names are those of the broker's
metrics, so that the two can be compared. One address (the crowd's) is at its cap all the time; now
and then the whole broker is, while the others open no connections. Bulk data keeps retention at
work. A connection that should have been ended and was not is `unexpected`.
"""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.produce import ProduceResponse
from tests.bad_input.batches import good, produce
from tests.bad_input.cases_requests import fetch
from tests.bad_input.wire import decoded, int16, int32, request
from tests.soak.rude_peer import RefusedError, RudePeer, dial
from tests.soak.scene import (
    BULK,
    CONNECTIONS_PER_ADDRESS_MAX,
    LARGE,
    LARGE_RECORD_BYTES,
    LARGE_RECORDS,
    MEBIBYTE,
    REQUEST_SECONDS,
    SLOW_READER_SECONDS,
)
from tests.soak.worker import serve

CROWD_ADDRESS = "127.0.0.2"
RUDE_ADDRESS = "127.0.0.3"
FILLING_ADDRESSES = ("127.0.0.4", "127.0.0.5", "127.0.0.6")
GRACE_SECONDS = 20.0
"""For a busy machine, beyond the broker's own limit."""
PRODUCE_KEY, METADATA_KEY, PRODUCE_VERSION = 0, 3, 9
NICENESS = 10
"""The abuse yields to the broker and to those that are measured."""
UNEXPECTED_MAX = 20
BULK_BYTES = 100_000
TOO_LARGE_BYTES = 2_000_000
HEAVY_BYTES = 10 * MEBIBYTE
FULL_SECONDS = 2.0


class Abuse:
    """All kinds, each on its thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._door = threading.Lock()
        """Held while a connection is opened; for long while the whole broker is full."""
        self._is_over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.seen: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.unexpected: list[str] = []

    # --- Commands of the leader ---

    def fill(self) -> dict[str, bool]:
        """Put the data in place that slow readers ask for."""
        peer = dial(self._port, RUDE_ADDRESS)
        for _ in range(LARGE_RECORDS):
            assert self._produce(peer, LARGE, LARGE_RECORD_BYTES) is ErrorCode.NONE
        peer.close()
        return {"filled": True}

    def start(self) -> dict[str, bool]:
        """Begin, all kinds at once."""
        kinds: list[tuple[Callable[[], None], float]] = [
            (self._crowd, 0.0),
            (self._one_too_many, 0.2),
            (self._all_too_many, 10.0),
            (self._slow_reader, 1.0),
            (self._slow_reader, 2.0),
            (self._unfinished, 1.0),
            (self._heavy, 10.0),
            (self._oversized, 0.5),
            (self._malformed, 0.5),
            (self._unsupported, 0.5),
            (self._too_large, 0.5),
            (self._bulk, 0.2),
        ]
        for action, pause_seconds in kinds:
            thread = threading.Thread(
                target=self._repeat, args=(action, pause_seconds), daemon=True
            )
            self._threads.append(thread)
            thread.start()
        return {"started": True}

    def stop(self) -> dict[str, object]:
        """Finish what is under way; what was seen."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)
        stuck = [thread.name for thread in self._threads if thread.is_alive()]
        return {
            "seen": dict(self.seen),
            "done": dict(self.done),
            "unexpected": [*self.unexpected, *(f"{name} is stuck" for name in stuck)],
        }

    def _repeat(self, action: Callable[[], None], pause_seconds: float) -> None:
        while not self._is_over.is_set():
            try:
                action()
                self._count(self.done, action.__name__)
            except Exception as error:  # noqa: BLE001 (reported at the end)
                self._tell(f"{action.__name__}: {type(error).__name__}: {error}")
                self._is_over.wait(1.0)
            self._is_over.wait(pause_seconds)

    def _count(self, counter: Counter[str], name: str) -> None:
        with self._lock:
            counter[name] += 1

    def _tell(self, text: str) -> None:
        with self._lock:
            if len(self.unexpected) < UNEXPECTED_MAX:
                self.unexpected.append(text)

    def _dial(self, source: str = RUDE_ADDRESS, receive_buffer_bytes: int = 0) -> RudePeer:
        with self._door:
            return dial(self._port, source, receive_buffer_bytes=receive_buffer_bytes)

    def _ends(self, peer: RudePeer, seconds_max: float, reason: str) -> None:
        """The broker must end this connection, and count it so."""
        if peer.is_ended(seconds_max + GRACE_SECONDS):
            self._count(self.seen, reason)
        else:
            self._tell(f"{reason}: not ended in time")
        peer.close()

    # --- Connections at the cap ---

    def _crowd(self) -> None:
        """As many connections of one address as it may have, kept alive to the end."""
        crowd = [self._dial(CROWD_ADDRESS) for _ in range(CONNECTIONS_PER_ADDRESS_MAX)]
        while not self._is_over.wait(5.0):
            for peer in crowd:
                peer.ping()
        for peer in crowd:
            peer.close()

    def _one_too_many(self) -> None:
        with self._door:
            peer = self._attempt(CROWD_ADDRESS)
        if peer is not None:
            peer.close()

    def _attempt(self, source: str) -> RudePeer | None:
        """A connection, or None and one more that was seen refused."""
        try:
            return dial(self._port, source)
        except RefusedError:
            self._count(self.seen, "refused")
            return None

    def _all_too_many(self) -> None:
        """Fill the whole broker, knock some more, hold it for a while."""
        with self._door:
            held: list[RudePeer] = []
            try:
                while (peer := self._attempt(FILLING_ADDRESSES[len(held) % 3])) is not None:
                    held.append(peer)
                for _ in range(5):
                    late = self._attempt(FILLING_ADDRESSES[0])
                    if late is not None:
                        held.append(late)
                time.sleep(FULL_SECONDS)
            finally:
                for peer in held:
                    peer.close()
        if not held:
            self._tell("the broker was full before it was filled")

    # --- Slow ones ---

    def _slow_reader(self) -> None:
        """Ask for much and read nothing until the time is up."""
        peer = self._dial(receive_buffer_bytes=4_096)
        peer.send(fetch(topic=LARGE, bytes_max=16 * MEBIBYTE) * 2)
        time.sleep(1.25 * SLOW_READER_SECONDS + 3.0)
        self._ends(peer, 1.0, "unread_answers")

    def _unfinished(self) -> None:
        peer = self._dial()
        peer.send(b"\x00\x00\x01")
        self._ends(peer, REQUEST_SECONDS, "unfinished_request")

    def _heavy(self) -> None:
        """Large requests that never end, more than the budget allows: reading pauses."""
        head = int32(90 * MEBIBYTE) + int16(PRODUCE_KEY) + int16(PRODUCE_VERSION)
        peers = [self._dial() for _ in range(3)]
        senders = [
            threading.Thread(target=peer.send, args=(head + bytes(HEAVY_BYTES),)) for peer in peers
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        for peer in peers:
            self._ends(peer, REQUEST_SECONDS, "unfinished_request")

    # --- Wrong ones ---

    def _oversized(self) -> None:
        for data in (int32(200 * MEBIBYTE), int32(3 * MEBIBYTE) + int16(METADATA_KEY)):
            peer = self._dial()
            peer.send(data)
            self._ends(peer, 0.0, "frame_length")

    def _malformed(self) -> None:
        peer = self._dial()
        peer.send(request(METADATA_KEY, 12, b"\xff\xff\xff\xff"))
        self._ends(peer, 0.0, "malformed")

    def _unsupported(self) -> None:
        peer = self._dial()
        peer.send(request(999, 0, b""))
        self._ends(peer, 0.0, "unsupported_api")

    def _too_large(self) -> None:
        peer = self._dial()
        self._produce(peer, LARGE, TOO_LARGE_BYTES)
        peer.close()

    def _bulk(self) -> None:
        peer = self._dial()
        for _ in range(10):
            if self._produce(peer, BULK, BULK_BYTES) is ErrorCode.NETWORK_EXCEPTION:
                break
            self._is_over.wait(0.2)
        peer.close()

    def _produce(self, peer: RudePeer, topic: str, size: int) -> ErrorCode:
        """One batch; a refusal is counted by its error."""
        peer.send(produce(good(1, size=size), topic=topic))
        try:
            data = peer.answer()
        except (ConnectionError, EOFError):
            # A large request has to wait while the heavy ones hold the memory, and its time runs.
            self._count(self.seen, "unfinished_request")
            return ErrorCode.NETWORK_EXCEPTION
        answer = decoded(PRODUCE_KEY, PRODUCE_VERSION, data)
        assert isinstance(answer, ProduceResponse)
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if code is not ErrorCode.NONE:
            self._count(self.seen, code.name)
        return code


def main() -> None:
    os.nice(NICENESS)
    abuse = Abuse(int(sys.argv[1]))
    serve({"fill": abuse.fill, "start": abuse.start, "stop": abuse.stop})


if __name__ == "__main__":
    main()
