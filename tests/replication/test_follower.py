"""The phases of a follower, and its decisions about answers of its leader."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import EpochEndOffset, PartitionData
from penstock.replication.follower import (
    PAUSE_SECONDS_MAX,
    PAUSE_SECONDS_MIN,
    Append,
    CommittedCutError,
    Cut,
    Follower,
    LogEnd,
    Pause,
    Phase,
    Restart,
    decide,
)
from penstock.storage.log.leader_epochs import EpochEnd


def answer(
    *,
    error: ErrorCode = ErrorCode.NONE,
    diverging: tuple[int, int] = (-1, -1),
    start: int = 0,
    records: bytes = b"",
) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=7,
        log_start_offset=start,
        diverging_epoch=EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
        records=records,
    )


def test_an_answer_counts_only_for_the_request_under_way() -> None:
    follower = Follower()
    first = follower.send()
    assert follower.is_awaited(first)
    second = follower.send()
    assert not follower.is_awaited(first)
    assert follower.is_awaited(second)


@pytest.mark.parametrize("event", ["append", "cut", "pause"])
def test_each_change_of_the_log_drops_the_answer_under_way(event: str) -> None:
    follower = Follower()
    sent = follower.send()
    match event:
        case "append":
            follower.appended(is_synced=True)
        case "cut":
            follower.cutting()
            follower.cut_done()
        case "pause":
            assert follower.wake(follower.pause(0.0))
    assert follower.phase is Phase.FETCHING
    assert not follower.is_awaited(sent)


def test_unsynced_records_are_not_reported() -> None:
    follower = Follower()
    follower.appended(is_synced=False)
    assert follower.phase is Phase.SYNCING
    with pytest.raises(AssertionError):
        follower.send()
    assert follower.synced()
    assert not follower.synced()
    follower.send()


def test_pauses_grow_and_end_with_records() -> None:
    follower = Follower()
    assert follower.pause(1.0) == 1.0 + PAUSE_SECONDS_MIN
    assert not follower.wake(1.0)
    assert follower.wake(1.1)
    for _ in range(10):
        until = follower.pause(2.0)
    assert until == 2.0 + PAUSE_SECONDS_MAX
    assert follower.wake(until)
    follower.appended(is_synced=True)
    assert follower.pause(5.0) == 5.0 + PAUSE_SECONDS_MIN


LOG = LogEnd(start_offset=0, end_offset=20, high_watermark=5)
NO_EPOCHS = EpochEnd(-1, -1)


def test_records_are_appended_with_the_leaders_offsets() -> None:
    action = decide(answer(records=b"abc", start=2), LOG, NO_EPOCHS, is_recovering=False)
    assert isinstance(action, Append)
    assert (bytes(action.records), action.high_watermark, action.log_start_offset) == (b"abc", 7, 2)


def test_an_error_is_a_pause() -> None:
    refused = answer(error=ErrorCode.FENCED_LEADER_EPOCH)
    assert decide(refused, LOG, NO_EPOCHS, is_recovering=False) == Pause("FENCED_LEADER_EPOCH")


@pytest.mark.parametrize(
    ("diverging", "shared", "offset"),
    [
        ((3, 12), EpochEnd(3, 20), 12),
        ((3, 12), EpochEnd(3, 10), 10),
        ((3, 12), EpochEnd(2, 15), 15),
        ((3, 12), EpochEnd(2, 8), 8),
        ((-1, 12), NO_EPOCHS, 12),
    ],
    ids=["the leader's end", "own end", "own earlier epoch", "earlier, below", "no epoch"],
)
def test_a_log_is_cut_where_the_histories_part(
    diverging: tuple[int, int], shared: EpochEnd, offset: int
) -> None:
    action = decide(answer(diverging=diverging), LOG, shared, is_recovering=False)
    assert action == Cut(offset)


def test_committed_records_are_cut_only_for_an_unclean_leader() -> None:
    parted = answer(diverging=(3, 4))
    with pytest.raises(CommittedCutError, match="cut at 4, below the high watermark 5"):
        decide(parted, LOG, EpochEnd(3, 20), is_recovering=False)
    assert decide(parted, LOG, EpochEnd(3, 20), is_recovering=True) == Cut(4)


def test_a_log_below_its_leaders_start_begins_anew_there() -> None:
    assert decide(answer(start=30), LOG, NO_EPOCHS, is_recovering=False) == Restart(30)
    assert not isinstance(decide(answer(start=20), LOG, NO_EPOCHS, is_recovering=False), Restart), (
        "it ends where the leader begins"
    )


def test_an_empty_log_above_its_leaders_end_begins_anew() -> None:
    empty = LogEnd(start_offset=50, end_offset=50, high_watermark=0)
    parted = answer(diverging=(-1, 20), start=3)
    assert decide(parted, empty, NO_EPOCHS, is_recovering=False) == Restart(3)


def test_a_divergence_without_a_cut_does_not_loop() -> None:
    action = decide(answer(diverging=(3, 40)), LOG, EpochEnd(3, 20), is_recovering=False)
    assert isinstance(action, Pause)
