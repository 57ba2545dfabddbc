"""A log that rejects writes fails no transaction shard; tombstones fit into it."""

import pytest

from penstock.coordinator.shard import REFUSED_RETRY_MS
from penstock.coordinator.transactions.effects import NextProducerId
from penstock.coordinator.transactions.settings import TransactionSettings
from penstock.coordinator.transactions.shard import TIMED_OUT_PER_BATCH_MAX
from penstock.core.limits import COORDINATOR_PORTION_BYTES_MAX, COORDINATOR_PORTION_RECORDS_MAX
from penstock.protocol.error_codes import ErrorCode
from tests.coordinator.transactions.rig import Rig

ORDERS = ("orders", 0)
CHECK_MS = 10_000
HOUR_MS = 3_600_000
LONG = "x" * 32_000


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_an_end_that_could_not_be_noted_is_noted_later_without_new_markers(rig: Rig) -> None:
    rig.init()
    rig.add((1000, 0), ORDERS)
    rig.end((1000, 0), commits=True)
    kept = rig.ask_add_without_answer((1000, 1), ORDERS)
    rig.is_log_full = True
    rig.finish_effects()
    assert rig.state() == "PREPARE_COMMIT"
    assert kept not in rig.replies, "the runtime tells it"
    rig.pass_time(5 * REFUSED_RETRY_MS)
    rig.is_log_full = False
    rig.pass_time(REFUSED_RETRY_MS)
    assert rig.state() == "COMPLETE_COMMIT"
    assert len(rig.markers) == 1
    assert rig.effects == []
    assert rig.add((1000, 1), ORDERS) == [ErrorCode.NONE]


def test_a_late_transaction_that_could_not_be_aborted_is_aborted_at_the_next_check(
    rig: Rig,
) -> None:
    rig.init(timeout_ms=1)
    rig.add((1000, 0), ORDERS)
    rig.is_log_full = True
    rig.pass_time(2 * CHECK_MS)
    assert rig.state() == "ONGOING"
    assert rig.effects == []
    rig.is_log_full = False
    rig.pass_time(CHECK_MS)
    assert rig.state() == "PREPARE_ABORT"


def test_a_late_transaction_without_epochs_gets_its_producer_id_all_the_same(rig: Rig) -> None:
    rig.init(timeout_ms=1)
    rig.init("other", timeout_ms=1)
    rig.exhaust(32_766)
    rig.add((1000, 32_766), ORDERS)
    rig.add((1001, 0), ORDERS, transactional_id="other")
    rig.is_log_full = True
    rig.pass_time(CHECK_MS)
    assert rig.effects == [NextProducerId("t")], "nobody else would ask for it"
    rig.finish_effects()
    rig.is_log_full = False
    rig.pass_time(CHECK_MS)
    rig.finish_effects()
    rig.finish_effects()
    assert [rig.state(name) for name in ("t", "other")] == ["COMPLETE_ABORT"] * 2


def test_ids_that_could_not_be_forgotten_are_forgotten_at_the_next_check() -> None:
    rig = Rig(TransactionSettings(id_expiration_ms=1))
    rig.init()
    rig.is_log_full = True
    rig.pass_time(HOUR_MS)
    assert set(rig.shard.transactions) == {"t"}
    rig.is_log_full = False
    rig.pass_time(HOUR_MS - 1)
    assert set(rig.shard.transactions) == {"t"}
    rig.pass_time(1)
    assert rig.shard.transactions == {}


# --- Portions ---


def test_long_ids_expire_in_batches_that_fit() -> None:
    rig = Rig(TransactionSettings(id_expiration_ms=1), checks_each=False)
    count = 2 * COORDINATOR_PORTION_BYTES_MAX // len(LONG)
    for number in range(count):
        rig.init(f"{LONG}-{number}")
    written = len(rig.log)
    rig.now_ms += HOUR_MS
    outcome = rig.shard.timer_fired(("expirations",), rig.now_ms)
    assert 0 < len(outcome.records) * len(LONG) <= COORDINATOR_PORTION_BYTES_MAX
    rig.pass_time(0)
    rig.check()
    assert rig.shard.transactions == {}
    assert len(rig.log) - written == count


def test_short_ids_expire_in_batches_of_a_bounded_number() -> None:
    rig = Rig(TransactionSettings(id_expiration_ms=1), checks_each=False)
    for number in range(COORDINATOR_PORTION_RECORDS_MAX + 1):
        rig.init(f"t{number}")
    rig.check()
    outcome = rig.shard.timer_fired(("expirations",), rig.now_ms + HOUR_MS)
    assert len(outcome.records) == COORDINATOR_PORTION_RECORDS_MAX


def test_large_transactions_are_aborted_in_batches_that_fit() -> None:
    rig = Rig(checks_each=False)
    topics = [(f"{number}".rjust(200, "t"), 0) for number in range(500)]
    for number in range(20):
        _, producer_id, epoch = rig.init(f"t{number}", timeout_ms=1)
        rig.add((producer_id, epoch), *topics, transactional_id=f"t{number}")
    outcome = rig.shard.timer_fired(("timeouts",), rig.now_ms + CHECK_MS)
    assert 0 < len(outcome.records) < 20 < TIMED_OUT_PER_BATCH_MAX
    assert len(outcome.records) * 500 * 200 <= COORDINATOR_PORTION_BYTES_MAX
    rig.pass_time(CHECK_MS)
    rig.check()
    assert {now.state.name for now in rig.shard.transactions.values()} == {"PREPARE_ABORT"}


def test_a_start_in_the_future_does_not_hold_a_transaction_open() -> None:
    """The clock of its coordinator went back, or another broker with a late clock took over."""
    rig = Rig(checks_each=False)
    _, producer_id, epoch = rig.init("t", timeout_ms=CHECK_MS)
    rig.add((producer_id, epoch), ("orders", 0), transactional_id="t")
    rig.now_ms -= HOUR_MS
    assert not rig.shard.timer_fired(("timeouts",), rig.now_ms).records
    rig.now_ms -= CHECK_MS
    assert not rig.shard.timer_fired(("timeouts",), rig.now_ms).records
    assert not rig.shard.timer_fired(("timeouts",), rig.now_ms + CHECK_MS).records
    assert rig.shard.timer_fired(("timeouts",), rig.now_ms + CHECK_MS + 1).records
