"""`Stacks`: the stacks of the event loop during a long pause, for its analysis.

A thread looks at the stack of the loop's thread every few milliseconds, which costs the broker
some CPU time; it runs only with PENSTOCK_STACKS=1. Compiled functions have no frames, so it says
little about an installed package.
"""

import gc
import sys
import threading
import time
from collections import Counter, deque
from types import FrameType
from typing import Any, Final

LOOK_SECONDS: Final = 0.003
FRAMES_MAX: Final = 8
LOOKS_KEPT: Final = 2_000
SHOWN_MAX: Final = 4
COLLECTION_SECONDS_MIN: Final = 0.005


class Stacks(threading.Thread):
    """Looks at the thread that creates it."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._watched = threading.get_ident()
        self._looks: deque[tuple[float, str]] = deque(maxlen=LOOKS_KEPT)
        self._collections: deque[tuple[float, str]] = deque(maxlen=LOOKS_KEPT)
        self._collecting_since = 0.0
        gc.callbacks.append(self._collected)
        self.start()

    def run(self) -> None:
        """Look until the process ends."""
        while True:
            time.sleep(LOOK_SECONDS)
            self._looks.append((time.monotonic(), _text(sys._current_frames()[self._watched])))

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        now = time.thread_time()
        if phase == "start":
            self._collecting_since = now
        elif now - self._collecting_since > COLLECTION_SECONDS_MIN:
            cost = f"generation {info['generation']} {1_000 * (now - self._collecting_since):.0f}"
            self._collections.append((time.monotonic(), f"{cost} ms"))

    def report(self, begun: float, ended: float, pause_seconds: float) -> None:
        """Write where the loop was in this time to standard error."""
        found = Counter(text for moment, text in tuple(self._looks) if begun <= moment <= ended)
        collections = [
            text for moment, text in tuple(self._collections) if begun <= moment <= ended
        ]
        lines = [f"pause of {1_000 * pause_seconds:.0f} ms CPU; collections {collections}"]
        lines += [f"pause: {count} x {text}" for text, count in found.most_common(SHOWN_MAX)]
        print("\n".join(lines), file=sys.stderr, flush=True)


def _text(frame: FrameType | None) -> str:
    places: list[str] = []
    while frame is not None and len(places) < FRAMES_MAX:
        code = frame.f_code
        places.append(f"{code.co_filename.rpartition('/')[2]}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " < ".join(places)
