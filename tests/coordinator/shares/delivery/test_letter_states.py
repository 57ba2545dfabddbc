"""Dead letters in the state machine of deliveries: order of writes, bounds, loads."""

import pytest

from penstock.coordinator.shares.delivery import runs
from penstock.coordinator.shares.delivery.acknowledgement import Acknowledged
from penstock.coordinator.shares.delivery.acquisition import FetchedBatch
from penstock.coordinator.shares.delivery.runs import (
    ARCHIVED,
    ARCHIVING,
    EXHAUSTED,
    REJECTED,
    Change,
)
from penstock.coordinator.shares.delivery.share_delivery import (
    DeliveryRules,
    Letter,
    ShareDelivery,
)
from penstock.coordinator.shares.ports import Refusal, StateBatch

RULES = DeliveryRules(30.0, 2, 10, has_dead_letters=True)


def acquired(delivery: ShareDelivery, last: int, count: int = 100) -> None:
    first = delivery.next_offset()
    batches = [FetchedBatch(first, last)]
    delivery.acquire("m", first, batches, 0.0, records_max=count, batch_size=500, is_exact=True)


def stored(delivery: ShareDelivery) -> tuple[StateBatch, ...]:
    write = delivery.take_write()
    delivery.written(write)
    return write.batches


def rejected(delivery: ShareDelivery, first: int, last: int) -> None:
    assert isinstance(delivery.acknowledge("m", [Acknowledged(first, last, (3,))], 0.0), Change)


def has_room(delivery: ShareDelivery) -> bool:
    return delivery.has_room


def test_a_letter_is_due_when_its_state_is_durable_and_archived_when_it_is_written() -> None:
    delivery = ShareDelivery(0, (), RULES)
    acquired(delivery, 4)
    rejected(delivery, 1, 2)
    assert delivery.take_letters(10) == ()
    write = delivery.take_write()
    assert write.batches == (StateBatch(1, 2, ARCHIVING, 1),)
    assert delivery.take_letters(10) == ()
    delivery.written(write)
    assert delivery.take_letters(1) == (Letter(1, 1, 1, REJECTED),)
    assert delivery.take_letters(10) == (Letter(2, 2, 1, REJECTED),)
    delivery.letters_written(1, 1)
    delivery.letters_failed(2, 2)
    assert delivery.take_letters(10) == (Letter(2, 2, 1, REJECTED),)
    assert stored(delivery) == (StateBatch(1, 1, ARCHIVED, 1),)
    assert isinstance(delivery.acknowledge("m", [Acknowledged(2, 2, (1,))], 0.0), Refusal)
    delivery.validate()


def test_the_end_of_a_lock_at_the_limit_waits_for_its_write() -> None:
    delivery = ShareDelivery(0, (StateBatch(0, 0, 0, 1),), RULES)
    acquired(delivery, 0)
    delivery.expire(99.0)
    assert delivery.take_letters(10) == ()
    write = delivery.take_write()
    delivery.failed(write, 99.0)
    assert delivery.take_letters(10) == ()
    assert stored(delivery) == (StateBatch(0, 0, ARCHIVING, 2),)
    assert delivery.take_letters(10) == (Letter(0, 0, 2, EXHAUSTED),)
    delivery.letters_written(0, 0)
    assert delivery.start_offset == 1
    assert not delivery.has_letters


def test_a_loaded_letter_is_due_again() -> None:
    batches = (StateBatch(0, 0, ARCHIVING, 1), StateBatch(1, 1, ARCHIVING, 2))
    delivery = ShareDelivery(0, batches, RULES)
    assert delivery.start_offset == 0
    assert delivery.take_letters(10) == (Letter(0, 0, 1, REJECTED), Letter(1, 1, 2, EXHAUSTED))
    delivery.move_log_start(1)  # retention deletes a record meanwhile
    delivery.letters_written(0, 0)
    delivery.letters_written(1, 1)
    assert delivery.start_offset == 2
    delivery.validate()


def test_waiting_letters_do_not_fill_the_window_but_have_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "ARCHIVING_MAX", 3)
    delivery = ShareDelivery(0, (), RULES)
    acquired(delivery, 9)
    assert not has_room(delivery)
    rejected(delivery, 0, 0)
    delivery.acknowledge("m", [Acknowledged(1, 9, (1,))], 0.0)
    stored(delivery)
    # The start stays at the record that waits for its letter; the window is free again.
    assert delivery.start_offset == 0
    assert has_room(delivery)
    acquired(delivery, 30, 10)
    assert delivery.end_offset == 20
    assert not has_room(delivery)
    rejected(delivery, 10, 11)
    stored(delivery)
    assert not has_room(delivery), "three records wait for letters"
    (letter, *_) = delivery.take_letters(1)
    delivery.letters_written(letter.first, letter.last)
    assert has_room(delivery)
    assert delivery.counts() == (8, 2, 0)


def test_a_lower_limit_gives_records_up_with_a_letter() -> None:
    delivery = ShareDelivery(0, (StateBatch(0, 0, 0, 4),), RULES)
    acquired(delivery, 0)
    stored(delivery)
    assert delivery.take_letters(10) == (Letter(0, 0, 4, EXHAUSTED),)


def test_without_a_topic_there_are_no_letters() -> None:
    delivery = ShareDelivery(0, (), RULES._replace(has_dead_letters=False))
    acquired(delivery, 1)
    rejected(delivery, 0, 1)
    assert delivery.take_write().start_offset == 2
    assert not delivery.has_letters
