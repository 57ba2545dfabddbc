"""A client that behaves, paced and measured: `well_behaved.py PORT produce|fetch`.

The producer is idempotent, waits for each answer (acks=all), and retries after a full disk. It
keeps the acknowledged records and compares them with the log at the end. The reader fetches from
the start of the log. Each answer's time is recorded under the phase (`phase-NAME`) in which its
request was due. Only successful answers count: an error is quick and no service.

A request that had to wait for the answer before it is timed from the moment it was due, and one
that was never sent for that reason counts with the wait: a broker that stands still for a second is
not one slow request but fifty. A request during which the host took the processor is counted and
not timed (`stolen_time`).
"""

import statistics
import sys
import threading
import time
from array import array
from collections import Counter

from penstock.client import calls
from penstock.client.transport.addresses import Address
from penstock.client.transport.blocking import BlockingConnection, connect
from penstock.core.clock import SystemClock
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.records.builder import build_batch
from penstock.records.record import Record
from tests.crash.clients import read_everything
from tests.crash.ledger import Ledger, Sent, summary
from tests.soak.scene import LEDGER, LEDGER_PARTITIONS
from tests.soak.stolen_time import StolenTime
from tests.soak.worker import serve

HOST = "127.0.0.1"
INTERVAL_SECONDS = 0.02
"""Fifty requests a second: a hundred thousand in half an hour, and little of the processor."""
LATE_SECONDS_MAX = 1.0
"""Who is later than this leaves turns out: a flood after a pause would not be well-behaved."""
REFUSED_PAUSE_SECONDS = 0.1
REQUEST_SECONDS_MAX = 30.0
FETCH_BYTES = 16_384
UNEXPECTED_MAX = 20
CLOCK = SystemClock()


class Paced:
    """Requests at their due times, on a thread, until it is stopped."""

    def __init__(
        self,
        port: int,
        interval_seconds: float = INTERVAL_SECONDS,
        host: StolenTime | None = None,
    ) -> None:
        self._port = port
        self._interval_seconds = interval_seconds
        self._host = StolenTime() if host is None else host
        self._stolen_at = 0.0
        """When stolen time was last seen."""
        self._connection: BlockingConnection | None = None
        self._phases = ("none", "none", 0.0)
        """The phase before, the current one, and when it began."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._plan = 0.0
        self._due = 0.0
        self.times: dict[str, array[float]] = {}
        self.disturbed: Counter[str] = Counter()
        """Requests of each phase during which the host took the processor away."""
        self.refused: Counter[str] = Counter()
        self.unexpected: list[str] = []

    def begin(self, phase: str) -> dict[str, str]:
        """Note the times of requests that are due from now on under this phase."""
        self.times.setdefault(phase, array("d"))
        # One assignment: the thread of the requests reads it.
        self._phases = (self._phases[1], phase, time.perf_counter())
        if not self._thread.is_alive():
            self._thread.start()
        return {"phase": phase}

    def stop(self) -> dict[str, object]:
        """No more requests; what was measured."""
        self._is_over.set()
        self._thread.join(2 * REQUEST_SECONDS_MAX)
        return {
            "phases": {phase: _spread(times) for phase, times in self.times.items() if times},
            "disturbed": dict(self.disturbed),
            "refused": dict(self.refused),
            "unexpected": self.unexpected,
        }

    def _run(self) -> None:
        self._plan = time.perf_counter()
        while not self._is_over.is_set():
            self._wait_for_turn()
            try:
                if self._connection is None:
                    address = Address(HOST, self._port)
                    self._connection = connect(address, timeout_seconds=REQUEST_SECONDS_MAX)
                    self._plan_anew()
                    continue
                self._work(self._connection)
            except Exception as error:  # noqa: BLE001 (a well-behaved client has none: reported)
                if len(self.unexpected) < UNEXPECTED_MAX:
                    self.unexpected.append(f"{type(error).__name__}: {error}")
                self._connection = None
                time.sleep(1.0)
                self._plan_anew()

    def _wait_for_turn(self) -> None:
        """Sleep until the next request is due, and note since when its time counts."""
        self._plan += self._interval_seconds
        now = time.perf_counter()
        while now - self._plan > LATE_SECONDS_MAX:
            self._note(self._plan)
            self._plan += self._interval_seconds
        self._due = self._plan
        if now < self._plan:
            time.sleep(self._plan - now)
            # A late wake-up of this process is not the broker's doing.
            self._due = time.perf_counter()
            self._host.seconds()

    def _plan_anew(self) -> None:
        """Who just came, or was refused and waits of its own accord, has missed no turn."""
        self._plan = time.perf_counter()

    def _work(self, connection: BlockingConnection) -> None:
        raise NotImplementedError

    def _note(self, due: float) -> None:
        now = time.perf_counter()
        if self._host.seconds():
            self._stolen_at = now
        before, current, begun_at = self._phases
        phase = current if due >= begun_at else before
        if due <= self._stolen_at:
            self.disturbed[phase] += 1
        else:
            self.times[phase].append((now - due) * 1_000)


class Producer(Paced):
    """One record at a time."""

    def __init__(self, port: int, interval_seconds: float = INTERVAL_SECONDS) -> None:
        super().__init__(port, interval_seconds)
        self.ledger = Ledger()
        self._number = 0
        self._sequences = [0] * LEDGER_PARTITIONS
        self._identity: calls.ProducerIdentity | None = None

    def _work(self, connection: BlockingConnection) -> None:
        if self._identity is None:
            self._identity = connection.carry(calls.start_producer())
            self._plan_anew()
            return
        partition = self._number % LEDGER_PARTITIONS
        sent = Sent("well-behaved", self._number, partition)
        at = TopicPartition(LEDGER, partition)
        batch = build_batch(
            [Record(value=sent.value(), timestamp_ms=CLOCK.now_ms())],
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=self._sequences[partition],
        )
        wait_ms = round(REQUEST_SECONDS_MAX * 500)
        answer = connection.carry(calls.send_batches({at: batch}, acks=-1, timeout_ms=wait_ms))[at]
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            self._note(self._due)
            self.ledger.acknowledged(sent, answer.base_offset)
            self._sequences[partition] += 1
            self._number += 1
            return
        self.refused[code.name] += 1
        if code is not ErrorCode.KAFKA_STORAGE_ERROR and len(self.unexpected) < UNEXPECTED_MAX:
            self.unexpected.append(f"produce: {code.name} {answer.error_message}")
        time.sleep(REFUSED_PAUSE_SECONDS)
        self._plan_anew()

    def verify(self) -> dict[str, object]:
        """Read everything back and compare."""
        log = read_everything(f"{HOST}:{self._port}")
        violations = self.ledger.violations(self.ledger.expected(), log)
        return {
            "acknowledged": self._number,
            "violations": len(violations),
            "told": summary(violations) if violations else "",
        }


class Reader(Paced):
    """The first bytes of one partition after the other."""

    def __init__(self, port: int, interval_seconds: float = INTERVAL_SECONDS) -> None:
        super().__init__(port, interval_seconds)
        self._number = 0

    def _work(self, connection: BlockingConnection) -> None:
        at = TopicPartition(LEDGER, self._number % LEDGER_PARTITIONS)
        self._number += 1
        bounds = calls.FetchBounds(
            wait_ms_max=0, bytes_max=FETCH_BYTES, partition_bytes_max=FETCH_BYTES
        )
        answer = connection.carry(calls.fetch_batches({at: 0}, bounds))[at]
        if answer.error_code != ErrorCode.NONE:
            raise RuntimeError(f"fetch: {ErrorCode(answer.error_code).name}")
        if answer.records:
            self._note(self._due)


def _spread(times: "array[float]") -> dict[str, float]:
    hundredths = statistics.quantiles(times, n=100) if len(times) > 1 else [times[0]] * 99
    return {
        "count": len(times),
        "p50_ms": hundredths[49],
        "p99_ms": hundredths[98],
        "max_ms": max(times),
    }


def main() -> None:
    port, role = int(sys.argv[1]), sys.argv[2]
    client = Producer(port) if role == "produce" else Reader(port)
    answers = {
        "phase-unloaded": lambda: client.begin("unloaded"),
        "phase-loaded": lambda: client.begin("loaded"),
        "phase-full": lambda: client.begin("full"),
        "stop": client.stop,
    }
    if isinstance(client, Producer):
        answers["verify"] = client.verify
    serve(answers)


if __name__ == "__main__":
    main()
