"""Decides which of many tables gets its next batch (pure).

A topic is due when its ends differ from the ends in its table, and when it does not wait after a
failure. The topic that has been due longest is first, so a busy topic does not delay the others by
more than one batch each.

After a failure a topic waits, twice as long each time, up to five minutes, with a random part: one
store that stopped delays hundreds of tables, and they must not return together. A lasting failure,
such as a table of another owner, ends the topic until the next start. The others go on.

It knows topics and their ends, and no tables. Time is an argument.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

Ends = Mapping[int, int]
"""The end offset of each partition."""

WAIT_SECONDS_MIN: Final = 1.0
WAIT_SECONDS_MAX: Final = 300.0


@dataclass(slots=True)
class TopicState:
    """One topic."""

    ends: Ends = field(default_factory=dict)
    """The newest known ends."""
    committed: Ends | None = None
    """The ends that the table has; None before the first batch."""
    due_since: float | None = None
    not_before: float = 0.0
    failures: int = 0
    """Failures since the last batch."""
    problem: str = ""
    is_ended: bool = False
    """Whether the failure is lasting."""


class ManySchedule:
    """The topics of one worker."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._topics: dict[str, TopicState] = {}

    @property
    def topics(self) -> Mapping[str, TopicState]:
        """The known topics."""
        return self._topics

    def seen(self, ends: Mapping[str, Ends], now: float) -> list[str]:
        """Accept the current topics and their ends; return the topics that are gone."""
        gone = [topic for topic in self._topics if topic not in ends]
        for topic in gone:
            del self._topics[topic]
        for topic, found in ends.items():
            state = self._topics.setdefault(topic, TopicState())
            state.ends = dict(found)
            if not _has_news(state):
                state.due_since = None
            elif state.due_since is None:
                state.due_since = now
        return gone

    def next_due(self, now: float) -> str | None:
        """Return the topic that has been due longest."""
        due = [
            (state.due_since, topic)
            for topic, state in self._topics.items()
            if state.due_since is not None and not state.is_ended and state.not_before <= now
        ]
        return min(due)[1] if due else None

    def next_moment(self) -> float | None:
        """Return the end of the shortest wait after a failure."""
        waits = [
            state.not_before
            for state in self._topics.values()
            if state.failures and not state.is_ended and state.due_since is not None
        ]
        return min(waits, default=None)

    def committed(self, topic: str, now: float, *, is_whole: bool) -> None:
        """Note a batch; `is_whole`: the table has the topic up to the known ends."""
        state = self._topics[topic]
        state.failures, state.problem, state.not_before = 0, "", 0.0
        if is_whole:
            state.committed, state.due_since = state.ends, None
        else:
            state.due_since = now

    def failed(self, topic: str, now: float, problem: str, *, is_lasting: bool) -> float | None:
        """Note a failure; return the seconds until the next attempt, None for a lasting one."""
        state = self._topics[topic]
        state.failures += 1
        state.problem = problem
        state.is_ended = is_lasting
        if is_lasting:
            return None
        longest = min(WAIT_SECONDS_MAX, WAIT_SECONDS_MIN * 2.0 ** min(state.failures, 30))
        seconds = self._random.uniform(longest / 2, longest)
        state.not_before = now + seconds
        return seconds

    def problems(self) -> dict[str, str]:
        """Return the reasons of the topics whose last attempt failed."""
        return {topic: one.problem for topic, one in self._topics.items() if one.problem}


def _has_news(state: TopicState) -> bool:
    """Return whether the ends differ from those of the table; an empty new topic has no news."""
    if state.committed is None:
        return any(state.ends.values())
    return dict(state.committed) != dict(state.ends)
