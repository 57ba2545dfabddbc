"""The verdicts about the output of the verifiable clients: lost, doubled, rebalanced.

Guarantees: pure functions over the documents that the programs printed. An acknowledged record that
no consumer of the group got is lost; a record that the group got twice, or a value that is in the
topic twice, is doubled. The first assignment of each consumer is no rebalance of the restarts.

The programs are in `tools`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compat.bounces.tools import Event

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True)
class Verdict:
    """The findings of one scenario."""

    records: int
    lost: int
    doubled: int
    other: str = ""
    """Further figures."""
    rebalances: int = 0
    """Rebalances that a restart must not cause."""

    @property
    def is_right(self) -> bool:
        """Whether there were records, each of them is there once, and nothing was rebalanced."""
        return self.records > 0 and not (self.lost or self.doubled or self.rebalances)

    def __str__(self) -> str:
        text = f"{self.records} records, {self.lost} lost, {self.doubled} doubled"
        return f"{text}, {self.other}" if self.other else text


def acknowledged(events: Iterable[Event]) -> dict[Place, str]:
    """The values that a producer has acknowledgements for, by their places."""
    return {
        (event["partition"], event["offset"]): str(event["value"])
        for event in events
        if event.get("name") == "producer_send_success"
    }


def failures(events: Iterable[Event]) -> int:
    """The records that a producer gave up."""
    return sum(event.get("name") == "producer_send_error" for event in events)


def consumed(events: Iterable[Event]) -> Counter[tuple[Place, str]]:
    """The records that a consumer printed, with their places."""
    return Counter(
        ((event["partition"], event["offset"]), str(event["value"]))
        for event in events
        if event.get("name") == "record_data"
    )


def assignments(events: Iterable[Event]) -> int:
    """How often a consumer was given partitions."""
    return sum(event.get("name") == "partitions_assigned" for event in events)


def held(events: Iterable[Event]) -> frozenset[int]:
    """The partitions that a consumer has after these events."""
    now: set[int] = set()
    for event in events:
        if event.get("name") in {"partitions_assigned", "partitions_revoked"}:
            numbers = {one["partition"] for one in event["partitions"]}
            now = now | numbers if event["name"] == "partitions_assigned" else now - numbers
    return frozenset(now)


def is_shared(consumers: Sequence[Sequence[Event]], partitions: int) -> bool:
    """Whether each consumer has partitions, and each partition is with one consumer."""
    shares = [held(one) for one in consumers]
    return all(shares) and sorted(number for one in shares for number in one) == [
        *range(partitions)
    ]


def judge_group(producer: Sequence[Event], consumers: Sequence[Sequence[Event]]) -> Verdict:
    """One producer and the consumers of one group."""
    sent = acknowledged(producer)
    found: Counter[tuple[Place, str]] = sum((consumed(one) for one in consumers), Counter())
    lost = sum((place, value) not in found for place, value in sent.items())
    places = Counter(place for place, _ in found.elements())
    values = Counter(value for _, value in found)
    doubled = sum(count - 1 for count in (*places.values(), *values.values()) if count > 1)
    given_up = failures(producer)
    return Verdict(len(sent), lost, doubled, f"{given_up} given up by the producer")


def judge_copy(source: Sequence[str], target: Sequence[str]) -> Verdict:
    """The committed values of the input and of the output."""
    wanted, found = Counter(source), Counter(target)
    return Verdict(len(source), (wanted - found).total(), (found - wanted).total())
