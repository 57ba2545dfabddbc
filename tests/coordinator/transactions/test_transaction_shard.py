"""The transaction coordinator, one promise at a time; the rig reloads after each event."""

import pytest

from penstock.coordinator.transactions.settings import TransactionSettings
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.end_txn import EndTxnResponse
from penstock.protocol.messages.init_producer_id import InitProducerIdResponse
from tests.coordinator.transactions.rig import Rig

ORDERS = ("orders", 0)
PAYMENTS = ("payments", 3)
NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
WRONG_ID = ErrorCode.INVALID_PRODUCER_ID_MAPPING
BAD_STATE = ErrorCode.INVALID_TXN_STATE
EPOCH_MAX = 32_767
DAY_MS = 86_400_000


@pytest.fixture
def rig() -> Rig:
    return Rig()


def open_transaction(rig: Rig, version: int = 5) -> tuple[int, int]:
    code, producer_id, epoch = rig.init()
    assert code is NONE
    assert rig.add((producer_id, epoch), ORDERS, PAYMENTS, version=version) == [NONE, NONE]
    return producer_id, epoch


def test_a_transaction_may_have_no_partitions(rig: Rig) -> None:
    rig.init()
    assert rig.add((1000, 0)) == []
    assert rig.state() == "ONGOING"
    assert rig.end((1000, 0), commits=True) == (NONE, 1000, 1)
    rig.finish_effects()
    assert rig.state() == "COMPLETE_COMMIT"


def test_what_clients_ask_for_can_be_taken_back_when_the_log_refuses_it(rig: Rig) -> None:
    rig.init()
    rig.is_log_full = True
    ticket = rig.ask_add_refused((1000, 0), ORDERS)
    assert ticket not in rig.replies
    rig.is_log_full = False
    assert rig.state() == "EMPTY"
    assert rig.add((1000, 0), ORDERS) == [NONE]
    rig.is_log_full = True
    rig.ask_end_refused((1000, 0))
    rig.is_log_full = False
    assert rig.effects == []
    assert rig.state() == "ONGOING"
    assert rig.end((1000, 0), commits=True) == (NONE, 1000, 1)


# --- InitProducerId ---


def test_a_new_id_gets_a_producer_id_and_epoch_0(rig: Rig) -> None:
    assert rig.init() == (NONE, 1000, 0)
    assert rig.init("other") == (NONE, 1001, 0)


def test_a_second_init_bumps_the_epoch_and_fences_the_first_producer(rig: Rig) -> None:
    rig.init()
    assert rig.init() == (NONE, 1000, 1)
    assert rig.add((1000, 0), ORDERS) == [FENCED]
    assert rig.add((1000, 1), ORDERS) == [NONE]


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_range_is_refused(rig: Rig, timeout_ms: int) -> None:
    assert rig.init(timeout_ms=timeout_ms) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1)


def test_an_empty_transactional_id_is_refused(rig: Rig) -> None:
    assert rig.init("") == (ErrorCode.INVALID_REQUEST, -1, -1)
    assert rig.add((1, 0), ORDERS, transactional_id="") == [ErrorCode.INVALID_REQUEST]
    assert rig.end((1, 0), commits=True, transactional_id="")[0] is ErrorCode.INVALID_REQUEST


def test_init_while_another_init_draws_an_id_is_told_to_come_back(rig: Rig) -> None:
    rig.ask_init_without_answer()
    assert rig.init(settle=False) == (CONCURRENT, -1, -1)
    rig.finish_effects()
    assert rig.init() == (NONE, 1000, 1)


def test_without_a_producer_id_the_client_is_told_to_retry(rig: Rig) -> None:
    ticket = rig.ask_init_without_answer()
    rig.finish_effects(fails=True)
    response = rig.replies[ticket]
    assert isinstance(response, InitProducerIdResponse)
    assert response.error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert rig.init() == (NONE, 1000, 0)


def test_a_producer_that_names_its_epoch_goes_on_with_the_next(rig: Rig) -> None:
    rig.init()
    assert rig.init(expected=(1000, 0)) == (NONE, 1000, 1)


def test_a_retried_init_gets_the_same_answer(rig: Rig) -> None:
    rig.init()
    rig.init(expected=(1000, 0))
    assert rig.init(expected=(1000, 0)) == (NONE, 1000, 1)


def test_a_retried_init_is_fenced_when_a_new_producer_came_in_between(rig: Rig) -> None:
    rig.init()
    rig.init(expected=(1000, 0))
    rig.init()
    assert rig.init(expected=(1000, 0)) == (FENCED, -1, -1)


def test_a_retried_init_is_fenced_after_a_reload(rig: Rig) -> None:
    """As in Kafka: the record does not hold the epoch before."""
    rig.init()
    rig.init(expected=(1000, 0))
    rig.start()
    assert rig.init(expected=(1000, 0)) == (FENCED, -1, -1)


def test_a_stranger_who_names_another_producer_id_is_fenced(rig: Rig) -> None:
    rig.init()
    assert rig.init(expected=(999, 0)) == (FENCED, -1, -1)


def test_an_expired_producer_that_names_its_old_id_gets_a_new_one(rig: Rig) -> None:
    assert rig.init(expected=(55, 3)) == (NONE, 1000, 0)


def test_init_aborts_the_open_transaction_first(rig: Rig) -> None:
    producer = open_transaction(rig)
    assert rig.init(settle=False) == (CONCURRENT, -1, -1)
    assert rig.state() == "PREPARE_ABORT"
    assert rig.init(settle=False) == (CONCURRENT, -1, -1)
    rig.finish_effects()
    assert rig.state() == "COMPLETE_ABORT"
    assert [(m.commits, m.producer_epoch) for m in rig.markers] == [(False, 1)]
    assert rig.init() == (NONE, 1000, 2)
    assert rig.end(producer, commits=True) == (FENCED, -1, -1)


def test_epochs_that_ran_out_lead_to_a_new_producer_id(rig: Rig) -> None:
    rig.init()
    rig.exhaust(EPOCH_MAX - 1)
    assert rig.init() == (NONE, 1001, 0)
    assert rig.add((1000, EPOCH_MAX - 1), ORDERS) == [WRONG_ID]


def test_a_retry_after_a_rotation_is_known_by_its_old_id(rig: Rig) -> None:
    rig.init()
    rig.exhaust(EPOCH_MAX - 1)
    old = (1000, EPOCH_MAX - 1)
    assert rig.init(expected=old) == (NONE, 1001, 0)
    assert rig.init(expected=old) == (NONE, 1001, 0)


# --- AddPartitionsToTxn ---


def test_partitions_are_added_once_and_the_start_is_kept(rig: Rig) -> None:
    producer = open_transaction(rig)
    started_ms = rig.shard.transactions["t"].started_ms
    records = len(rig.log)
    rig.now_ms += 50
    assert rig.add(producer, ORDERS) == [NONE]
    assert len(rig.log) == records
    assert rig.add(producer, ("orders", 1)) == [NONE]
    now = rig.shard.transactions["t"]
    assert now.started_ms == started_ms
    assert now.partitions == {TopicPartition(*p) for p in (ORDERS, PAYMENTS, ("orders", 1))}


def test_adds_of_strangers_are_refused(rig: Rig) -> None:
    assert rig.add((1000, 0), ORDERS) == [WRONG_ID]
    rig.init()
    assert rig.add((1001, 0), ORDERS) == [WRONG_ID]
    assert rig.add((1000, 1), ORDERS) == [FENCED]


def test_the_next_transaction_waits_for_the_markers_of_the_last(rig: Rig) -> None:
    producer = open_transaction(rig)
    _, *following = rig.end(producer, commits=True)
    first = rig.ask_add_without_answer((following[0], following[1]), ORDERS)
    second = rig.ask_add_without_answer((following[0], following[1]), PAYMENTS)
    records = len(rig.log)
    rig.finish_effects()
    assert rig.codes(first) == rig.codes(second) == [NONE]
    assert rig.state() == "ONGOING"
    assert len(rig.log) == records + 2
    assert ("adds", "t") not in rig.timers


def test_an_add_that_waited_too_long_is_told_to_come_back(rig: Rig) -> None:
    producer = open_transaction(rig)
    rig.end(producer, commits=True)
    ticket = rig.ask_add_without_answer((1000, 1), ORDERS)
    rig.pass_time(100)
    assert rig.codes(ticket) == [CONCURRENT]
    rig.finish_effects()
    assert rig.state() == "COMPLETE_COMMIT"
    assert rig.add((1000, 1), ORDERS) == [NONE]


def test_an_add_that_would_be_refused_anyway_does_not_wait(rig: Rig) -> None:
    producer = open_transaction(rig)
    rig.end(producer, commits=True)
    assert rig.add(producer, ORDERS) == [CONCURRENT]
    assert rig.add((9, 9), ORDERS) == [CONCURRENT]


def test_only_so_many_adds_wait(rig: Rig) -> None:
    producer = open_transaction(rig)
    rig.end(producer, commits=True)
    for number in range(64):
        rig.ask_add_without_answer((1000, 1), ("orders", number))
    assert rig.add((1000, 1), PAYMENTS) == [CONCURRENT]
    rig.finish_effects()
    assert len(rig.shard.transactions["t"].partitions) == 64


def test_the_next_transaction_after_the_last_epoch_waits_with_its_new_id(rig: Rig) -> None:
    rig.init()
    rig.exhaust(EPOCH_MAX - 1)
    rig.add((1000, EPOCH_MAX - 1), ORDERS)
    assert rig.end((1000, EPOCH_MAX - 1), commits=True) == (NONE, 1001, 0)
    ticket = rig.ask_add_without_answer((1001, 0), ORDERS)
    rig.finish_effects()
    assert rig.codes(ticket) == [NONE]


def test_verification_tells_which_partitions_belong_to_the_transaction(rig: Rig) -> None:
    producer = open_transaction(rig)
    records = len(rig.log)
    codes = rig.add(producer, ORDERS, ("orders", 9), verify_only=True)
    assert codes == [NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert rig.add((producer[0], 9), ORDERS, verify_only=True) == [FENCED]
    assert rig.add((9, 0), ORDERS, verify_only=True) == [WRONG_ID]
    rig.end(producer, commits=True)
    assert rig.add((1000, 1), ORDERS, verify_only=True) == [CONCURRENT]
    assert len(rig.log) == records + 1


# --- EndTxn, transaction version 2 ---


@pytest.mark.parametrize("commits", [True, False])
def test_an_end_is_answered_with_the_next_epoch_before_the_markers(rig: Rig, commits: bool) -> None:
    producer = open_transaction(rig)
    assert rig.end(producer, commits=commits) == (NONE, 1000, 1)
    assert rig.state() == ("PREPARE_COMMIT" if commits else "PREPARE_ABORT")
    rig.finish_effects()
    assert rig.state() == ("COMPLETE_COMMIT" if commits else "COMPLETE_ABORT")
    (marker,) = rig.markers
    assert marker.partitions == (TopicPartition(*ORDERS), TopicPartition(*PAYMENTS))
    assert (marker.commits, marker.producer_id, marker.producer_epoch) == (commits, 1000, 1)
    assert (marker.coordinator_epoch, marker.transaction_version) == (7, 2)


def test_a_retried_end_is_known_by_its_epoch(rig: Rig) -> None:
    producer = open_transaction(rig)
    rig.end(producer, commits=True)
    assert rig.end(producer, commits=True) == (CONCURRENT, -1, -1)
    rig.finish_effects()
    assert rig.end(producer, commits=True) == (NONE, 1000, 1)
    assert rig.end(producer, commits=False) == (BAD_STATE, -1, -1)
    assert len(rig.markers) == 1


def test_an_abort_without_a_transaction_bumps_the_epoch(rig: Rig) -> None:
    rig.init()
    assert rig.end((1000, 0), commits=False) == (NONE, 1000, 1)
    rig.finish_effects()
    assert rig.markers[0].partitions == ()
    assert rig.end((1000, 1), commits=False) == (NONE, 1000, 2)
    rig.finish_effects()
    assert rig.end((1000, 1), commits=False) == (NONE, 1000, 2)


def test_a_commit_without_a_transaction_is_refused(rig: Rig) -> None:
    rig.init()
    assert rig.end((1000, 0), commits=True) == (BAD_STATE, -1, -1)
    producer = open_transaction(rig)
    rig.end(producer, commits=True)
    rig.finish_effects()
    assert rig.end((1000, 2), commits=True) == (BAD_STATE, -1, -1)


def test_ends_of_strangers_are_refused(rig: Rig) -> None:
    assert rig.end((1, 0), commits=True) == (WRONG_ID, -1, -1)
    open_transaction(rig)
    assert rig.end((1, 0), commits=True) == (WRONG_ID, -1, -1)
    assert rig.end((1000, 1), commits=True) == (FENCED, -1, -1)
    assert rig.end((1000, -1), commits=True) == (FENCED, -1, -1)


def test_the_last_epoch_ends_with_a_new_producer_id(rig: Rig) -> None:
    rig.init()
    rig.exhaust(EPOCH_MAX - 1)
    last = (1000, EPOCH_MAX - 1)
    rig.add(last, ORDERS)
    assert rig.end(last, commits=True) == (NONE, 1001, 0)
    assert rig.end(last, commits=True) == (CONCURRENT, -1, -1)
    rig.finish_effects()
    assert [(m.producer_id, m.producer_epoch) for m in rig.markers] == [(1000, EPOCH_MAX)]
    assert rig.end(last, commits=True) == (NONE, 1001, 0)
    assert rig.add((1001, 0), ORDERS) == [NONE]


def test_nothing_else_happens_while_an_end_waits_for_a_producer_id(rig: Rig) -> None:
    rig.init(timeout_ms=100)
    rig.exhaust(EPOCH_MAX - 1)
    last = (1000, EPOCH_MAX - 1)
    rig.add(last, ORDERS)
    ticket = rig.ask_end_without_answer(last)
    assert rig.add(last, PAYMENTS) == [CONCURRENT]
    assert rig.init(settle=False) == (CONCURRENT, -1, -1)
    assert rig.end(last, commits=False, settle=False) == (CONCURRENT, -1, -1)
    rig.pass_time(20_000)
    assert rig.state() == "ONGOING"
    rig.finish_effects()
    response = rig.replies[ticket]
    assert isinstance(response, EndTxnResponse)
    assert response.error_code is NONE


def test_an_epoch_of_32767_can_still_be_aborted(rig: Rig) -> None:
    open_transaction(rig)
    rig.exhaust(EPOCH_MAX)
    assert rig.init() == (CONCURRENT, -1, -1)
    rig.finish_effects()
    assert rig.state() == "COMPLETE_ABORT"
    assert rig.init() == (NONE, 1001, 1)


# --- EndTxn, before transaction version 2 ---


def test_an_old_client_keeps_its_epoch(rig: Rig) -> None:
    producer = open_transaction(rig, version=3)
    assert rig.end(producer, commits=True, version=4)[0] is NONE
    assert rig.end(producer, commits=True, version=4)[0] is CONCURRENT
    rig.finish_effects()
    assert rig.markers[0].producer_epoch == 0
    assert rig.end(producer, commits=True, version=4)[0] is NONE
    assert rig.end(producer, commits=False, version=4)[0] is BAD_STATE
    assert rig.add(producer, ORDERS, version=3) == [NONE]


def test_an_old_client_may_not_end_what_never_began(rig: Rig) -> None:
    rig.init()
    assert rig.end((1000, 0), commits=True, version=4)[0] is BAD_STATE
    assert rig.end((1000, 0), commits=False, version=4)[0] is BAD_STATE
    assert rig.end((1000, 1), commits=False, version=4)[0] is FENCED


# --- Time ---


def test_a_late_transaction_is_aborted_and_its_producer_fenced(rig: Rig) -> None:
    producer = open_transaction(rig)
    rig.pass_time(60_000)
    assert rig.state() == "ONGOING"
    rig.pass_time(10_000)
    assert rig.state() == "PREPARE_ABORT"
    rig.finish_effects()
    assert rig.add(producer, ORDERS) == [FENCED]
    assert rig.end(producer, commits=True) == (BAD_STATE, -1, -1)
    assert rig.init(expected=producer) == (NONE, 1000, 1)


def test_many_late_transactions_are_aborted_in_several_batches() -> None:
    rig = Rig(checks_each=False)
    for number in range(250):
        name = f"t{number}"
        _, producer_id, epoch = rig.init(name, timeout_ms=1)
        rig.add((producer_id, epoch), ORDERS, transactional_id=name)
    rig.pass_time(20_000)
    rig.check()
    assert {now.state.name for now in rig.shard.transactions.values()} == {"PREPARE_ABORT"}


def test_ids_at_rest_expire_after_a_week() -> None:
    rig = Rig(TransactionSettings(timeout_check_interval_ms=DAY_MS))
    rig.init("resting")
    producer = open_transaction(rig)
    rig.end(producer, commits=True)
    rig.finish_effects()
    rig.pass_time(6 * DAY_MS)
    rig.init("fresh")
    assert len(rig.shard.transactions) == 3
    rig.pass_time(DAY_MS + 3_600_000)
    assert list(rig.shard.transactions) == ["fresh"]
    assert rig.log[-1][1] is None


def test_many_ids_expire_in_several_batches() -> None:
    rig = Rig(TransactionSettings(id_expiration_ms=1), checks_each=False)
    for number in range(2_005):
        rig.now_ms += 1
        rig.init(f"t{number}")
    rig.check()
    rig.pass_time(3_600_001)
    rig.check()
    assert not rig.shard.transactions


# --- Markers and reloads ---


def test_markers_that_fail_are_written_again(rig: Rig) -> None:
    producer = open_transaction(rig)
    rig.end(producer, commits=True)
    rig.finish_effects(fails=True)
    assert rig.state() == "PREPARE_COMMIT"
    rig.pass_time(100)
    rig.finish_effects()
    assert rig.state() == "COMPLETE_COMMIT"


def test_a_new_coordinator_writes_the_markers_that_are_due(rig: Rig) -> None:
    producer = open_transaction(rig)
    rig.end(producer, commits=True)
    rig.start()
    rig.finish_effects()
    assert rig.state() == "COMPLETE_COMMIT"
    assert rig.end(producer, commits=True) == (NONE, 1000, 1)


def test_the_end_of_markers_that_nobody_waits_for_is_ignored(rig: Rig) -> None:
    producer = open_transaction(rig)
    rig.end(producer, commits=True)
    (effect,) = rig.effects
    rig.finish_effects()
    records = len(rig.log)
    rig.finish(effect)
    assert len(rig.log) == records
