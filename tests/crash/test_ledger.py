"""The checker is checked: each kind of violation is found, and a right log has none."""

import pytest

from tests.crash.ledger import Ledger, Sent, sent_of

Log = dict[int, list[tuple[int, bytes]]]


def filled() -> tuple[Ledger, Log]:
    """Three records of one producer in one partition, all acknowledged, the first one seen."""
    ledger = Ledger()
    log: Log = {0: [], 1: []}
    for offset in range(3):
        sent = Sent("a", offset, 0)
        ledger.acknowledged(sent, offset)
        log[0].append((offset, sent.value()))
    ledger.saw(0, 0, log[0][0][1])
    return ledger, log


def kinds(ledger: Ledger, log: Log) -> set[str]:
    return {text.partition(":")[0] for text in ledger.violations(ledger.expected(), log)}


def test_a_right_log_breaks_nothing() -> None:
    ledger, log = filled()
    assert kinds(ledger, log) == set()
    log[1].append((0, Sent("b", 0, 1).value()))
    assert kinds(ledger, log) == set()


def test_a_lost_tail() -> None:
    ledger, log = filled()
    log[0].pop()
    assert kinds(ledger, log) == {"lost"}


def test_a_record_that_a_consumer_saw_is_gone() -> None:
    ledger, log = filled()
    ledger.saw(1, 0, Sent("b", 0, 1).value())
    assert kinds(ledger, log) == {"vanished"}


def test_records_at_other_offsets() -> None:
    ledger, log = filled()
    log[0] = [(offset + 1, value) for offset, value in log[0]]
    assert kinds(ledger, log) == {"lost", "vanished"}


def test_a_duplicate() -> None:
    ledger, log = filled()
    log[0].append((3, log[0][2][1]))
    assert kinds(ledger, log) == {"duplicate"}


def test_two_records_in_the_wrong_order() -> None:
    ledger, log = filled()
    log[1] = [(0, Sent("b", 1, 1).value()), (1, Sent("b", 0, 1).value())]
    assert kinds(ledger, log) == {"order"}


def test_a_gap() -> None:
    ledger, log = filled()
    log[1] = [(0, Sent("b", 0, 1).value()), (2, Sent("b", 1, 1).value())]
    assert kinds(ledger, log) == {"gap"}


@pytest.mark.parametrize(
    "value", [b"", b"a:7", Sent("a", 7, 0).value()[:-1], Sent("a", 7, 1).value()]
)
def test_what_was_never_sent_to_this_partition(value: bytes) -> None:
    ledger, log = filled()
    log[0].append((3, value))
    assert kinds(ledger, log) == {"garbage"}


def test_a_consumer_that_is_shown_two_records_at_one_offset() -> None:
    ledger, log = filled()
    ledger.saw(0, 0, log[0][1][1])
    assert kinds(ledger, log) == {"changed"}


@pytest.mark.parametrize("sent", [Sent("a", 0, 0), Sent("kafka-python", 12_345, 3)])
def test_a_value_is_known_again(sent: Sent) -> None:
    assert sent_of(sent.value()) == sent
