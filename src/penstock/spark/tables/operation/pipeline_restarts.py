"""Decides whether a failed pipeline restarts, and when (pure: time and chance are arguments).

    failure that cannot pass        the run ends at once, with the error of the failure
    failure that may pass           restart after a pause that doubles from WAIT_MS_FIRST to
                                    WAIT_MS_MAX; a share of it is chance, so that many pipelines do
                                    not return to a broker at the same moment
    the first start fails           as above only if the user asked for restarts by name: an error
                                    at the first start is mostly a wrong setting
    a run of HEALTHY_MS or longer   with a commit: the next failure is the first one again

So a pipeline that fails in each of its first minutes ends after `count_max` restarts, and one that
fails once a day never does. It does not know errors: `failures` classifies them.
"""

from dataclasses import dataclass, replace
from typing import Final

WAIT_MS_FIRST: Final = 1_000
WAIT_MS_MAX: Final = 300_000
"""Five minutes: longer outages are reported by an alert, and the pipeline still returns soon."""
JITTER_SHARE: Final = 0.5
"""The pause is between this share of itself and the whole."""
HEALTHY_MS: Final = 60_000
IDLE_HEALTHY_MS: Final = 3_600_000
"""The same without a commit: a topic may be silent, and a batch may fail after each minute."""
"""Two batches at the default interval."""
COUNT_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The user's choice."""

    count_max: int | None
    """The number of restarts in a row; None: without a limit."""
    is_explicit: bool = False
    """Whether the user chose it: then the first start is repeated, too."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Start the pipeline again after a pause."""

    wait_ms: int
    number: int
    """The number of this restart in a row, from 1."""


@dataclass(frozen=True, slots=True)
class End:
    """End the run with the error of its failure."""

    reason: str
    """Empty if the error itself is the reason."""


@dataclass(frozen=True, slots=True)
class Restarts:
    """The restarts of one command so far."""

    policy: RestartPolicy
    in_a_row: int = 0
    total: int = 0
    has_run: bool = False
    """Whether the pipeline has run once, however short."""

    def validate(self) -> None:
        """Check the invariants."""
        assert 0 <= self.in_a_row <= self.total
        limit = self.policy.count_max
        assert limit is None or self.in_a_row <= limit

    def after_failure(
        self, *, may_pass: bool, ran_ms: int | None, chance: float, has_committed: bool = True
    ) -> tuple["Restarts", Restart | End]:
        """Return the next step after a failure.

        `ran_ms` is the time from the start of the query; None if it did not start. `chance` is a
        random number from 0 up to 1.
        """
        assert 0 <= chance < 1
        has_run = self.has_run or ran_ms is not None
        healthy_ms = HEALTHY_MS if has_committed else IDLE_HEALTHY_MS
        was_healthy = ran_ms is not None and ran_ms >= healthy_ms
        now = replace(self, has_run=has_run, in_a_row=0 if was_healthy else self.in_a_row)
        if not may_pass or not (has_run or self.policy.is_explicit):
            return now, End("")
        limit = self.policy.count_max
        if limit is not None and now.in_a_row >= limit:
            count = f"after {limit} restarts in a row" if limit else ""
            return now, End(count)
        number = now.in_a_row + 1
        return (
            replace(now, in_a_row=number, total=now.total + 1),
            Restart(wait_ms_before(number, chance), number),
        )


def wait_ms_before(number: int, chance: float) -> int:
    """Return the pause before the restart of this number in a row, from 1."""
    doublings = min(number - 1, 30)  # beyond that the maximum applies, and numbers stay small
    whole_ms = min(WAIT_MS_MAX, WAIT_MS_FIRST * 2**doublings)
    return int(whole_ms * (1 - JITTER_SHARE * chance))
