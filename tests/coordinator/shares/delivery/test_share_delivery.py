"""Cases of one share-partition, one by one: the list is that of Kafka's SharePartitionTest."""

import pytest

from penstock.coordinator.shares.delivery.acknowledgement import Acknowledged, check_request
from penstock.coordinator.shares.delivery.acquisition import Acquired, FetchedBatch
from penstock.coordinator.shares.delivery.runs import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    Change,
    Run,
)
from penstock.coordinator.shares.delivery.share_delivery import (
    RUNS_MAX,
    DeliveryRules,
    Held,
    ShareDelivery,
)
from penstock.coordinator.shares.ports import Refusal, StateBatch
from penstock.coordinator.shares.share_checks import CHANGE_BATCHES_MAX
from penstock.protocol.error_codes import ErrorCode

NOW = 100.0
ONE, TWO = "one", "two"


def delivery(start: int = 0, *batches: StateBatch, **rules: float) -> ShareDelivery:
    return ShareDelivery(start, batches, DeliveryRules(**rules))  # type: ignore[arg-type]


def get(
    state: ShareDelivery,
    *batches: FetchedBatch,
    member: str = ONE,
    most: int = 500,
    size: int = 500,
    is_exact: bool = False,
    at: int | None = None,
    now: float = NOW,
) -> list[Acquired]:
    offset = state.next_offset() if at is None else at
    got = state.acquire(
        member, offset, batches, now, records_max=most, batch_size=size, is_exact=is_exact
    )
    state.validate()
    return got


def acknowledge(
    state: ShareDelivery, first: int, last: int, *types: int, member: str = ONE
) -> None:
    change = state.acknowledge(member, [Acknowledged(first, last, types)], NOW)
    assert isinstance(change, Change)
    state.validate()


def store(state: ShareDelivery) -> tuple[int, int, tuple[StateBatch, ...]]:
    write = state.take_write()
    state.written(write)
    state.validate()
    return write.start_offset, write.complete_count, write.batches


def _records(got: list[Acquired]) -> dict[tuple[int, int], int]:
    """Acquired ranges with their delivery counts; neighbours with equal counts are one range."""
    found: dict[tuple[int, int], int] = {}
    for one in got:
        first = one.first
        for (begin, end), count in tuple(found.items()):
            if end + 1 == first and count == one.delivery_count:
                del found[begin, end]
                first = begin
        found[first, one.last] = one.delivery_count
    return found


def _first(state: ShareDelivery, stored: list[FetchedBatch]) -> int:
    """Read as the broker does: from the stored batch with the next offset on."""
    offset = state.next_offset()
    del stored[: next(index for index, one in enumerate(stored) if one.last >= offset)]
    return offset


def batch(first: int, last: int, *, is_dead: bool = False) -> FetchedBatch:
    return FetchedBatch(first, last, is_dead)


class TestLoad:
    def test_nothing_is_stored(self) -> None:
        state = delivery(7)
        assert (state.start_offset, state.end_offset, state.next_offset()) == (7, 7, 7)

    def test_the_start_moves_over_terminal_batches(self) -> None:
        state = delivery(
            5,
            StateBatch(5, 9, ACKNOWLEDGED, 1),
            StateBatch(10, 11, ARCHIVED, 5),
            StateBatch(12, 14, AVAILABLE, 2),
        )
        assert (state.start_offset, state.end_offset, state.next_offset()) == (12, 15, 12)

    def test_offsets_without_a_batch_are_available(self) -> None:
        state = delivery(5, StateBatch(8, 9, ACKNOWLEDGED, 1))
        assert state.next_offset() == 5
        assert get(state, batch(5, 9)) == [Acquired(5, 7, 1)]
        assert state.next_offset() == 10

    def test_delivery_counts_are_kept(self) -> None:
        state = delivery(0, StateBatch(0, 1, AVAILABLE, 2))
        assert get(state, batch(0, 1))[0].delivery_count == 3


class TestAcquire:
    def test_new_records_are_one_range(self) -> None:
        assert get(delivery(), batch(0, 4), batch(5, 9)) == [Acquired(0, 9, 1)]

    def test_a_batch_that_begins_before_the_start(self) -> None:
        assert get(delivery(3), batch(0, 4)) == [Acquired(3, 4, 1)]

    def test_ranges_end_at_batches(self) -> None:
        got = get(delivery(), batch(0, 2), batch(3, 5), batch(6, 8), size=4)
        assert got == [Acquired(0, 5, 1), Acquired(6, 8, 1)]

    def test_the_last_batch_may_exceed_the_number(self) -> None:
        state = delivery()
        assert get(state, batch(0, 4), batch(5, 9), most=3) == [Acquired(0, 4, 1)]
        assert state.next_offset() == 5

    def test_the_number_may_be_exact(self) -> None:
        state = delivery()
        assert get(state, batch(0, 4), most=3, is_exact=True) == [Acquired(0, 2, 1)]
        assert get(state, batch(0, 4), most=9, is_exact=True) == [Acquired(3, 4, 1)]

    def test_no_records_are_wanted(self) -> None:
        state = delivery()
        assert get(state, batch(0, 4), most=0) == []
        assert state.end_offset == 0

    def test_gaps_are_archived(self) -> None:
        state = delivery()
        assert get(state, batch(2, 3), batch(6, 7)) == [Acquired(2, 3, 1), Acquired(6, 7, 1)]
        assert state.start_offset == 2
        acknowledge(state, 2, 3, 1)
        store(state)
        assert state.start_offset == 6

    def test_control_batches_and_aborted_batches_are_archived(self) -> None:
        state = delivery()
        got = get(state, batch(0, 1), batch(2, 2, is_dead=True), batch(3, 4))
        assert got == [Acquired(0, 1, 1), Acquired(3, 4, 1)]
        acknowledge(state, 0, 1, 1)
        assert store(state)[0] == 3

    def test_a_batch_of_which_others_have_a_part(self) -> None:
        state = delivery()
        get(state, batch(0, 9), most=3, is_exact=True)
        get(state, batch(0, 9), most=3, is_exact=True, member=TWO)
        state.release_member(ONE)
        assert get(state, batch(0, 9), member=TWO) == [Acquired(0, 2, 2), Acquired(6, 9, 1)]

    def test_the_window_is_bounded(self) -> None:
        state = delivery(in_flight_max=6)
        assert get(state, batch(0, 3), batch(4, 7), batch(8, 9)) == [Acquired(0, 7, 1)]
        assert not state.has_room
        assert get(state, batch(8, 9)) == []
        acknowledge(state, 0, 3, 1)
        store(state)
        assert get(state, batch(8, 9)) == [Acquired(8, 9, 1)]

    def test_records_whose_end_is_being_written_leave_room(self) -> None:
        state = delivery(in_flight_max=6)
        get(state, batch(0, 5))
        acknowledge(state, 2, 5, 1)
        assert not state.has_room, "the records at the start have an owner"
        acknowledge(state, 0, 1, 1)
        write = state.take_write()
        assert get(state, batch(6, 9)) == [Acquired(6, 9, 1)]
        assert get(state, batch(10, 19), is_exact=True) == [Acquired(10, 11, 1)]
        acknowledge(state, 6, 11, 1)
        assert not state.has_room, "twice the window"
        state.failed(write, 0.0)
        assert (state.start_offset, state.end_offset, state.has_room) == (0, 12, False)
        acknowledge(state, 0, 5, 1)
        store(state)
        assert (state.start_offset, state.end_offset, state.has_room) == (12, 12, True)

    def test_runs_that_leave_are_looked_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        state = delivery(in_flight_max=200)
        get(state, *(batch(at, at) for at in range(200)))
        acknowledge(state, 0, 199, *(1, 3) * 100)
        assert state.run_count == 200
        looks: list[Run] = []

        def ends(run: Run) -> bool:
            looks.append(run)
            return run.change is not None

        monkeypatch.setattr(Run, "ends", property(ends))
        # `validate` looks at all of them: it is not called here.
        new = [batch(at, at) for at in range(200, 300)]
        got = state.acquire(ONE, 200, new, NOW, records_max=500, batch_size=500, is_exact=False)
        assert got == [Acquired(200, 299, 1)]
        assert len(looks) <= 200 + 2 * 100

    def test_the_states_of_the_largest_window_can_be_stored(self) -> None:
        state = delivery(in_flight_max=10_000)
        for _ in range(2):
            first = state.end_offset
            while state.has_room:
                get(state, batch(state.end_offset, state.end_offset + 599), most=600)
            acknowledge(
                state, first, state.end_offset - 1, *((1, 3) * 15_000)[: state.end_offset - first]
            )
            if not first:
                write = state.take_write()
        assert state.end_offset <= RUNS_MAX
        state.written(write)
        store(state)
        assert state.start_offset == state.end_offset

    def test_a_release_that_is_being_written_leaves_no_room(self) -> None:
        state = delivery(in_flight_max=6)
        get(state, batch(0, 5))
        acknowledge(state, 0, 5, 2)
        assert not state.has_room

    def test_the_window_is_exact_in_the_record_limit_mode(self) -> None:
        state = delivery(in_flight_max=6)
        assert get(state, batch(0, 9), is_exact=True) == [Acquired(0, 5, 1)]

    def test_released_records_are_acquired_in_a_full_window(self) -> None:
        state = delivery(in_flight_max=4)
        get(state, batch(0, 3))
        state.release_member(ONE)
        assert get(state, batch(0, 3), batch(4, 9), member=TWO) == [Acquired(0, 3, 2)]

    def test_a_read_behind_the_end_gives_nothing(self) -> None:
        assert get(delivery(), batch(5, 9), at=5) == []

    def test_a_full_window_names_the_owner_of_its_first_records(self) -> None:
        state = delivery(in_flight_max=10)
        assert state.held() is None
        get(state, FetchedBatch(0, 4))
        assert state.held() is None, "there is room"
        get(state, FetchedBatch(5, 9), member=TWO)
        assert state.held() == Held(0, ONE)
        acknowledge(state, 0, 4, 1)
        assert state.held() is None, "the records are leaving"
        get(state, FetchedBatch(10, 14))
        assert state.held() == Held(5, TWO)
        acknowledge(state, 5, 9, 2, member=TWO)
        assert state.held() is None, "their owner has done its part"
        store(state)
        assert state.held() is None, "records are available"


class TestFailedDeliveries:
    def test_the_last_attempt_is_alone(self) -> None:
        state = delivery(0, StateBatch(0, 3, AVAILABLE, 4), delivery_limit=5)
        assert get(state, batch(0, 3), batch(4, 9)) == [Acquired(0, 0, 5)]
        assert get(state, batch(0, 3), batch(4, 9)) == [Acquired(1, 1, 5)]

    def test_the_last_attempt_waits_for_the_next_fetch(self) -> None:
        state = delivery(
            0, StateBatch(0, 1, AVAILABLE, 0), StateBatch(2, 3, AVAILABLE, 4), delivery_limit=5
        )
        assert get(state, batch(0, 3)) == [Acquired(0, 1, 1)]
        assert get(state, batch(0, 3)) == [Acquired(2, 2, 5)]

    def test_fewer_neighbours_each_time(self) -> None:
        state = delivery(0, StateBatch(0, 7, AVAILABLE, 3), delivery_limit=6)
        assert get(state, batch(0, 7)) == [Acquired(0, 3, 4)]

    @pytest.mark.parametrize("ends", [(511,), (6, 300, 511)], ids=["one batch", "three batches"])
    def test_the_neighbours_are_those_of_the_first_delivery(self, ends: tuple[int, ...]) -> None:
        """Whatever the stored batches, and however the records were split since."""
        firsts = (0, *(end + 1 for end in ends[:-1]))
        stored = [batch(first, last) for first, last in zip(firsts, ends, strict=True)]
        state = delivery(delivery_limit=10, in_flight_max=1000)
        sizes: dict[int, set[int]] = {}
        deliveries = 0
        while got := _records(get(state, *stored, most=512, size=512, at=_first(state, stored))):
            for (first, last), count in got.items():
                sizes.setdefault(count, set()).add(last - first + 1)
                deliveries += last - first + 1
            for first, last in got:
                acknowledge(state, first, last, 2)
            store(state)
            if state.end_offset == state.start_offset:
                break
        assert deliveries == 512 * 10
        single = {count: size for count, (size,) in sizes.items()}
        halves = {6: 256, 7: 128, 8: 64, 9: 32, 10: 1}
        assert single == {**dict.fromkeys(range(1, 6), 512), **halves}

    def test_a_low_limit_has_no_single_deliveries(self) -> None:
        state = delivery(0, StateBatch(0, 7, AVAILABLE, 1), delivery_limit=2)
        assert get(state, batch(0, 7)) == [Acquired(0, 7, 2)]

    def test_a_release_at_the_limit_archives(self) -> None:
        state = delivery(0, StateBatch(0, 1, AVAILABLE, 1), delivery_limit=2)
        get(state, batch(0, 1))
        acknowledge(state, 0, 1, 2)
        assert store(state) == (2, 0, ())
        assert state.start_offset == 2

    def test_a_lock_that_ends_at_the_limit_archives(self) -> None:
        state = delivery(0, StateBatch(0, 1, AVAILABLE, 1), delivery_limit=2)
        get(state, batch(0, 1))
        state.expire(NOW + 31)
        assert state.start_offset == 2

    def test_the_end_of_a_record_is_stored_with_its_count(self) -> None:
        """Of two states of a record, the coordinator keeps the one with the higher count."""
        state = delivery(
            0,
            StateBatch(0, 0, AVAILABLE, 0),
            StateBatch(1, 1, ACKNOWLEDGED, 1),
            StateBatch(2, 2, AVAILABLE, 1),
            delivery_limit=2,
        )
        get(state, batch(0, 2))
        state.expire(NOW + 30)
        _, _, batches = store(state)
        (last,) = (one for one in batches if one.first_offset <= 2 <= one.last_offset)
        assert last.delivery_state in (ACKNOWLEDGED, ARCHIVED)
        assert last.delivery_count == 2

    def test_a_lower_limit_archives_what_was_delivered_often(self) -> None:
        state = delivery(0, StateBatch(0, 1, AVAILABLE, 4), delivery_limit=3)
        assert get(state, batch(0, 1), batch(2, 3)) == [Acquired(2, 3, 1)]
        assert state.start_offset == 2


class TestLocks:
    def test_a_lock_ends(self) -> None:
        state = delivery(lock_seconds=30.0)
        get(state, batch(0, 4))
        assert state.next_deadline() == NOW + 30
        state.expire(NOW + 29.9)
        assert not state.has_available
        state.expire(NOW + 30)
        assert get(state, batch(0, 4), member=TWO) == [Acquired(0, 4, 2)]

    def test_a_renewal_lasts_longer_and_writes_nothing(self) -> None:
        state = delivery(lock_seconds=30.0)
        get(state, batch(0, 4))
        assert state.acknowledge(ONE, [Acknowledged(0, 1, (4,))], NOW + 20) is None
        assert not state.needs_write
        state.expire(NOW + 30)
        assert state.next_deadline() == NOW + 50
        assert get(state, batch(0, 4)) == [Acquired(2, 4, 2)]

    def test_a_group_may_forbid_renewals(self) -> None:
        state = delivery(may_renew=False)
        get(state, batch(0, 4))
        outcome = state.acknowledge(ONE, [Acknowledged(0, 1, (4,))], NOW)
        assert isinstance(outcome, Refusal)

    def test_a_pending_acknowledgement_does_not_expire(self) -> None:
        state = delivery(lock_seconds=30.0)
        get(state, batch(0, 4))
        acknowledge(state, 0, 4, 1)
        state.expire(NOW + 99)
        assert not state.has_available
        store(state)
        assert state.start_offset == 5

    def test_a_lock_that_ended_meanwhile_counts_after_a_failed_write(self) -> None:
        state = delivery(lock_seconds=30.0)
        get(state, batch(0, 4))
        acknowledge(state, 0, 4, 1)
        write = state.take_write()
        state.failed(write, NOW + 31)
        assert get(state, batch(0, 4), member=TWO) == [Acquired(0, 4, 2)]

    def test_a_failed_write_leaves_the_records_with_their_owner(self) -> None:
        state = delivery()
        get(state, batch(0, 4))
        acknowledge(state, 0, 4, 1)
        state.failed(state.take_write(), NOW)
        assert not state.has_available
        acknowledge(state, 0, 4, 1)
        assert store(state)[0] == 5


class TestAcknowledge:
    def test_nothing_is_final_before_the_write(self) -> None:
        state = delivery()
        get(state, batch(0, 4))
        acknowledge(state, 0, 4, 1)
        assert state.start_offset == 0

    def test_the_start_stops_at_the_first_open_record(self) -> None:
        state = delivery()
        get(state, batch(0, 4))
        acknowledge(state, 1, 4, 1)
        assert store(state) == (0, 4, (StateBatch(1, 4, ACKNOWLEDGED, 1),))
        acknowledge(state, 0, 0, 3)
        assert store(state) == (5, 0, ())
        assert state.start_offset == 5
        assert state.run_count == 0

    def test_one_type_for_each_offset(self) -> None:
        state = delivery()
        get(state, batch(0, 4))
        acknowledge(state, 0, 4, 2, 1, 0, 3, 2)
        assert store(state) == (
            0,
            3,
            (
                StateBatch(0, 0, AVAILABLE, 1),
                StateBatch(1, 1, ACKNOWLEDGED, 1),
                StateBatch(2, 2, ARCHIVED, 1),
                StateBatch(3, 3, ARCHIVED, 1),
                StateBatch(4, 4, AVAILABLE, 1),
            ),
        )

    @pytest.mark.parametrize("offsets", [(0, 5), (4, 9), (7, 9)])
    def test_offsets_that_were_not_acquired(self, offsets: tuple[int, int]) -> None:
        state = delivery()
        get(state, batch(0, 4))
        outcome = state.acknowledge(ONE, [Acknowledged(*offsets, (1,))], NOW)
        assert isinstance(outcome, Refusal)
        assert outcome.error_code == ErrorCode.INVALID_REQUEST

    def test_a_pending_record_is_not_acknowledged_again(self) -> None:
        state = delivery()
        get(state, batch(0, 4))
        acknowledge(state, 0, 4, 1)
        outcome = state.acknowledge(ONE, [Acknowledged(0, 4, (2,))], NOW)
        assert isinstance(outcome, Refusal)
        assert outcome.error_code == ErrorCode.INVALID_RECORD_STATE

    def test_an_offset_in_two_ranges(self) -> None:
        state = delivery()
        get(state, batch(0, 9))
        ranges = [Acknowledged(0, 5, (1,)), Acknowledged(5, 9, (2,))]
        outcome = state.acknowledge(ONE, ranges, NOW)
        assert isinstance(outcome, Refusal)
        assert outcome.error_code == ErrorCode.INVALID_RECORD_STATE
        assert not state.needs_write

    def test_another_member_may_not(self) -> None:
        state = delivery()
        get(state, batch(0, 4))
        outcome = state.acknowledge(TWO, [Acknowledged(0, 4, (1,))], NOW)
        assert isinstance(outcome, Refusal)
        assert outcome.error_code == ErrorCode.INVALID_RECORD_STATE

    def test_a_range_below_the_start_is_ignored(self) -> None:
        state = delivery()
        get(state, batch(0, 4))
        state.move_log_start(3)
        assert state.acknowledge(ONE, [Acknowledged(0, 2, (1,))], NOW) is None
        acknowledge(state, 0, 4, 1, 1, 1, 1, 2)
        assert store(state) == (4, 0, (StateBatch(4, 4, AVAILABLE, 1),))

    def test_a_valid_range_beside_an_invalid_one_changes_nothing(self) -> None:
        state = delivery()
        get(state, batch(0, 4))
        outcome = state.acknowledge(ONE, [Acknowledged(0, 1, (1,)), Acknowledged(4, 7, (1,))], NOW)
        assert isinstance(outcome, Refusal)
        assert not state.needs_write

    def test_acknowledgements_share_a_write(self) -> None:
        state = delivery()
        get(state, batch(0, 9))
        acknowledge(state, 0, 1, 1)
        first = state.take_write()
        acknowledge(state, 2, 3, 1)
        acknowledge(state, 4, 5, 1)
        assert not state.needs_write, "one write at a time"
        state.written(first)
        assert state.start_offset == 2
        assert store(state) == (6, 0, ())

    def test_what_an_expired_lock_changed_is_written_again_after_a_failure(self) -> None:
        state = delivery(lock_seconds=1.0)
        get(state, batch(0, 4))
        state.expire(NOW + 1)
        state.failed(state.take_write(), NOW + 1)
        assert store(state) == (0, 0, (StateBatch(0, 4, AVAILABLE, 1),))

    def test_a_record_that_was_acquired_again_is_written_as_available(self) -> None:
        state = delivery(lock_seconds=1.0)
        get(state, batch(0, 4))
        state.expire(NOW + 1)
        get(state, batch(0, 4), member=TWO)
        assert store(state) == (0, 0, (StateBatch(0, 4, AVAILABLE, 1),))


class TestLogStart:
    def test_records_that_are_gone_are_not_delivered(self) -> None:
        state = delivery()
        get(state, batch(0, 9))
        state.move_log_start(5)
        state.validate()
        state.release_member(ONE)
        assert get(state, batch(5, 9)) == [Acquired(5, 9, 2)]

    def test_the_log_may_start_behind_the_end(self) -> None:
        state = delivery()
        get(state, batch(0, 9))
        state.move_log_start(20)
        assert (state.start_offset, state.end_offset, state.next_offset()) == (20, 20, 20)

    def test_a_pending_acknowledgement_of_records_that_are_gone(self) -> None:
        state = delivery()
        get(state, batch(0, 9))
        acknowledge(state, 0, 9, 1)
        write = state.take_write()
        state.move_log_start(20)
        state.written(write)
        state.validate()
        assert state.start_offset == 20


class TestMemory:
    def test_a_million_records_leave_no_runs(self) -> None:
        state = delivery()
        for first in range(0, 1_000_000, 500):
            get(state, batch(first, first + 499))
            acknowledge(state, first, first + 499, 1)
            store(state)
        assert state.run_count == 0

    def test_single_acknowledgements_join_again(self) -> None:
        state = delivery()
        get(state, batch(0, 999))
        for offset in range(999, 0, -1):
            kind = 1 + offset % 2 * 2
            assert state.acknowledge(ONE, [Acknowledged(offset, offset, (kind,))], NOW)
        store(state)
        assert state.run_count == 2

    def test_a_batch_of_very_many_records(self) -> None:
        """It is acquired whole; its members cannot make an object of each record."""
        state = delivery()
        get(state, batch(0, 999_999))
        refusals = 0
        for first in range(0, 100_000, 10_000):
            ranges = [Acknowledged(first, first + 9_999, (1, 2) * 5_000)]
            outcome = state.acknowledge(ONE, ranges, NOW)
            if isinstance(outcome, Refusal):
                assert outcome.error_code == ErrorCode.INVALID_REQUEST
                refusals += 1
        assert refusals == 9
        assert state.run_count <= RUNS_MAX
        assert RUNS_MAX <= CHANGE_BATCHES_MAX, "one write can have all of them"
        outcome = state.acknowledge(ONE, [Acknowledged(100_000, 999_999, (1,))], NOW)
        assert isinstance(outcome, Change)


class TestRequests:
    @pytest.mark.parametrize(
        ("batches", "is_valid"),
        [
            ([Acknowledged(0, 4, (1,))], True),
            ([Acknowledged(0, 1, (1, 2))], True),
            ([Acknowledged(0, 1, (4,))], False),
            ([Acknowledged(1, 0, (1,))], False),
            ([Acknowledged(0, 1, ())], False),
            ([Acknowledged(0, 2, (1, 2))], False),
            ([Acknowledged(0, 2, (-1,))], False),
            ([Acknowledged(0, 2, (5,))], False),
            ([Acknowledged(3, 4, (1,)), Acknowledged(0, 1, (1,))], False),
            ([Acknowledged(n, n, (1,)) for n in range(10_001)], False),
            ([Acknowledged(0, 10_000, (1,) * 10_001)], False),
        ],
    )
    def test_forms(self, batches: list[Acknowledged], is_valid: bool) -> None:
        refusal = check_request(batches, types_max=4, may_renew=False)
        assert (refusal is None) == is_valid

    def test_renewals_are_announced(self) -> None:
        batches = [Acknowledged(0, 1, (4,))]
        assert check_request(batches, types_max=4, may_renew=True) is None
        assert check_request(batches, types_max=3, may_renew=True) is not None
