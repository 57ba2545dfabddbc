"""The verdict on a failed call: retry, dead letter, skip or stop. A pure function.

    the error handler returns    attempts left           none left
    None, RETRY                  retry after a pause     dead letter
    DEAD_LETTER                  dead letter             dead letter
    SKIP                         done                    done
    STOP                         stop                    stop

A retry in fanout mode stays in memory for a short pause and goes to the retry topic for a long one.
In queue mode the record is released to the broker after its pause. Without a dead-letter topic a
dead letter is a stop in fanout mode, because a position cannot pass over a record without losing
it, and a rejection in queue mode, where the broker decides about rejected records. The number of
attempts is a hard limit: no error handler can repeat a record for ever.
"""

from enum import Enum
from typing import NamedTuple

from penstock.consumers.handling import ErrorAction
from penstock.consumers.options import ConsumerOptions, Mode


class VerdictKind(Enum):
    """The next step of a failed record."""

    RETRY_IN_PLACE = "retry in place"
    RETRY_TOPIC = "retry topic"
    RELEASE = "release"
    DEAD_LETTER = "dead letter"
    REJECT = "reject"
    SKIP = "skip"
    STOP = "stop"


class Verdict(NamedTuple):
    """The next step, and the pause before it."""

    kind: VerdictKind
    pause_seconds: float = 0.0


def judge(
    options: ConsumerOptions, attempt: int, action: ErrorAction | None, draw: float
) -> Verdict:
    """Return the verdict on attempt number `attempt`; `draw` (0 to 1) sets the jitter."""
    if action is ErrorAction.STOP:
        return Verdict(VerdictKind.STOP)
    if action is ErrorAction.SKIP:
        return Verdict(VerdictKind.SKIP)
    if action is ErrorAction.DEAD_LETTER or attempt >= options.retry.attempts:
        return Verdict(_without_attempts(options))
    pause_seconds = options.retry.pause_seconds(attempt, draw)
    if options.mode is Mode.QUEUE:
        # A held record blocks the next fetch of this member, so the pause has a bound.
        return Verdict(VerdictKind.RELEASE, min(pause_seconds, options.retry.in_place_seconds))
    is_short = options.retry.window_seconds(attempt) <= options.retry.in_place_seconds
    return Verdict(
        VerdictKind.RETRY_IN_PLACE if is_short else VerdictKind.RETRY_TOPIC, pause_seconds
    )


def _without_attempts(options: ConsumerOptions) -> VerdictKind:
    if options.dead_letter is not None:
        return VerdictKind.DEAD_LETTER
    return VerdictKind.REJECT if options.mode is Mode.QUEUE else VerdictKind.STOP
