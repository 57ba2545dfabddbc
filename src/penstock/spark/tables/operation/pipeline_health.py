"""Decides whether a pipeline is alive and ready, with reasons (pure: the time is an argument).

`live` is false only if a restart of the process helps: the driver of a continuous run no longer
works. `ready` is false while the pipeline does not follow its topics: it starts, waits after a
failure, reaches no broker, or has not committed although there is more to read. A pipeline has no
clients, so a pipeline that is not ready must not be restarted for it.
"""

from dataclasses import dataclass
from typing import Final

from penstock.core.quantities import duration_text, printable
from penstock.spark.tables.operation.run_state import Phase, RunState

SILENT_MS_MAX: Final = 120_000
"""The driver of a continuous run works every second; garbage collection may stop it for some."""
STALLED_INTERVALS: Final = 3
STALLED_MS_MIN: Final = 300_000
"""A batch of ten million records needs minutes."""
REASON_CHARACTERS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a pipeline."""

    phase: str
    is_live: bool
    reasons: tuple[str, ...]
    """Why it is not ready; empty if it is."""

    @property
    def is_ready(self) -> bool:
        """Whether the pipeline follows its topics."""
        return self.is_live and not self.reasons


def health_of(state: RunState, interval_ms: int) -> Health:
    """Return the health of now; `interval_ms` is the time between two batches."""
    now_ms = state.clock.now_ms()
    silent_ms = now_ms - state.beat_ms
    is_running = state.phase is Phase.RUNNING
    is_live = not (is_running and state.is_continuous and silent_ms > SILENT_MS_MAX)
    reasons = []
    if not is_live:
        reasons.append(f"the driver has not worked for {duration_text(silent_ms)}")
    if not is_running:
        reasons.append(_phase_text(state, now_ms))
    if state.broker_problem:
        reasons.append(f"no broker answers: {state.broker_problem}")
    stalled_ms = _stalled_ms(state, now_ms, interval_ms)
    if is_running and stalled_ms:
        reasons.append(f"no commit for {duration_text(stalled_ms)}, although there is more to read")
    texts = tuple(printable(one)[:REASON_CHARACTERS_MAX] for one in reasons)
    return Health(state.phase.value, is_live, texts)


def _phase_text(state: RunState, now_ms: int) -> str:
    failure = f": {state.failure.text}" if state.failure is not None else ""
    if state.phase is Phase.WAITING and state.restart is not None:
        left_ms = max(0, state.failed_ms + state.restart.wait_ms - now_ms)
        return f"restart {state.restart.number} follows in {duration_text(left_ms)}{failure}"
    if state.phase is Phase.STARTING:
        return "it starts"
    return f"it has ended{failure}"


def _stalled_ms(state: RunState, now_ms: int, interval_ms: int) -> int:
    """Return the time without a commit if that is too long; 0 otherwise."""
    if not any(place.lag for place in state.places.values()):
        return 0
    oldest_seconds = max(state.lag_seconds(at) for at in state.places)
    since_ms = state.last.committed_at_ms if state.last is not None else state.started_ms
    silent_ms = min(int(oldest_seconds * 1000), now_ms - max(since_ms, state.started_ms))
    return silent_ms if silent_ms > max(STALLED_INTERVALS * interval_ms, STALLED_MS_MIN) else 0
