"""The check of consumed records: it finds nothing in a good run, and finds each fault.

It was never fed: the figures of the soak said "0 seen", and the verdict was good.
"""

from collections.abc import Callable

import pytest

from tests.crash.ledger import Ledger, Sent
from tests.soak.comparison import Place, compared
from tests.soak.test_verdict import BOUNDS, good
from tests.soak.verdict import broken

SENT = [Sent("librdkafka", number, number % 2) for number in range(20)]


class Run:
    """The result of one soak: a log, and the acknowledged and consumed records of its clients."""

    def __init__(self) -> None:
        self.log = {
            partition: [
                (offset, sent.value())
                for offset, sent in enumerate(one for one in SENT if one.partition == partition)
            ]
            for partition in (0, 1)
        }
        self.shown: dict[str, set[Place]] = {"classic": set(), "consumer": set()}
        self.saw = [
            (group, partition, offset, value)
            for group in self.shown
            for partition, content in self.log.items()
            for offset, value in content
        ]

    def problems(self) -> list[str]:
        """What the verdict says."""
        ledger = Ledger()
        for sent in SENT:
            ledger.acknowledged(sent, sent.number // 2)
        for group, partition, offset, value in self.saw:
            self.shown[group].add((partition, offset))
            ledger.saw(partition, offset, value)
        found = good()
        found.real.update(compared(ledger, self.log, self.shown))
        return broken(found, BOUNDS)


def test_a_good_run_is_good() -> None:
    assert Run().problems() == []


def one_group_misses_a_record(run: Run) -> None:
    del run.saw[3]


def nobody_saw_a_record(run: Run) -> None:
    run.saw = [one for one in run.saw if one[1:3] != (0, 4)]


def nobody_saw_anything(run: Run) -> None:
    run.saw = []


def a_record_vanishes(run: Run) -> None:
    del run.log[1][9]


def a_record_changes(run: Run) -> None:
    group, partition, offset, _ = run.saw[-1]
    run.saw[-1] = (group, partition, offset, Sent("librdkafka", 999, partition).value())


def a_record_is_garbage(run: Run) -> None:
    group, partition, offset, _ = run.saw[-1]
    run.saw[-1] = (group, partition, offset, b"garbage")


FAULTS: dict[Callable[[Run], None], str] = {
    one_group_misses_a_record: "groups were not shown everything: {'classic': 1, 'consumer': 0}",
    nobody_saw_a_record: "consumers saw 19 records and not 1 others of the log",
    nobody_saw_anything: "consumers saw 0 records and not 20 others of the log",
    a_record_vanishes: "vanished: ",
    a_record_changes: "changed: ",
    a_record_is_garbage: "garbage: ",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_fault_fails_the_verdict(fault: Callable[[Run], None]) -> None:
    run = Run()
    fault(run)
    problems = run.problems()
    assert any(FAULTS[fault] in problem for problem in problems), problems
