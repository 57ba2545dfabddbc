"""The process of the attacks: `python -m tests.hostile.attacker PORT SEED SCALE`.

It answers `prepare NAME`, `start NAME` and `stop NAME` (`tests.soak.worker`). Several attacks may
run at once, each on a thread. It yields the processor to the broker and to the measured client, and
it uses one processor at most. `start burning` uses as much without any attack: the latencies that
attacks are compared with are measured beside it, so that they differ by the broker's work alone.
"""

import contextlib
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.hostile.admin_attacks import WideAdmin
from tests.hostile.attacks import (
    Attack,
    Bombs,
    Churn,
    Compaction,
    ManyProducers,
    Recompression,
    Refusals,
    TimeLookups,
    TinyRecords,
    WideFetch,
    WideListOffsets,
    WideMetadata,
    WideProduce,
)
from tests.hostile.group_attacks import ParkedJoins, ParkedSyncs, WideCommits
from tests.soak.worker import serve

NICENESS: Final = 10
STOP_SECONDS_MAX: Final = 60.0
ATTACKS: Final[dict[str, type[Attack]]] = {
    kind.name: kind
    for kind in (
        Bombs,
        Recompression,
        TinyRecords,
        TimeLookups,
        Compaction,
        ManyProducers,
        WideProduce,
        WideFetch,
        WideListOffsets,
        WideMetadata,
        WideCommits,
        WideAdmin,
        ParkedJoins,
        ParkedSyncs,
        Refusals,
        Churn,
    )
}


class Burner:
    """Uses a processor as the attacks do, and does not touch the broker."""

    def __init__(self) -> None:
        self._is_over = threading.Event()

    def start(self) -> dict[str, object]:
        """Compute until `stop`."""
        self._is_over.clear()
        threading.Thread(target=self._run, daemon=True).start()
        return {"started": True}

    def stop(self) -> dict[str, object]:
        """Let the processor go."""
        self._is_over.set()
        return {"stopped": True}

    def _run(self) -> None:
        while not self._is_over.is_set():
            sum(range(10_000))


class Running:
    """One attack on its thread."""

    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self._is_over = threading.Event()
        self._errors: Counter[str] = Counter()
        self._sent_before = 0
        self._thread: threading.Thread | None = None

    def prepare(self) -> dict[str, object]:
        """Create what the attack needs."""
        begun = time.monotonic()
        self._attack.prepare()
        self._sent_before = self._attack.sent
        return {"seconds": time.monotonic() - begun}

    def start(self) -> dict[str, object]:
        """Strike until `stop`."""
        self._is_over.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return {"started": True}

    def stop(self) -> dict[str, object]:
        """End the attack and report how much it sent."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS_MAX)
        sent = self._attack.sent - self._sent_before
        self._sent_before = self._attack.sent
        return {"sent": sent, "errors": dict(self._errors)}

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                self._attack.strike()
            except (OSError, AssertionError, TimeoutError) as error:
                # Being held back or disconnected is the broker's right.
                self._errors[f"{type(error).__name__}: {error}"[:80]] += 1
                self._is_over.wait(0.05)
            self._is_over.wait(self._attack.pause_seconds)


def main() -> None:
    port, seed, scale = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    burner = Burner()
    answers: dict[str, Callable[[], object]] = {
        "start burning": burner.start,
        "stop burning": burner.stop,
    }
    for number, (name, kind) in enumerate(ATTACKS.items()):
        running = Running(kind(port, random.Random(1_000 * seed + number), scale))
        answers[f"prepare {name}"] = running.prepare
        answers[f"start {name}"] = running.start
        answers[f"stop {name}"] = running.stop
    serve(answers)


if __name__ == "__main__":
    main()
