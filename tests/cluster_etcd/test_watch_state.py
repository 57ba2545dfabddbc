"""A watch over streams that break anywhere gives every change once, in order, or asks to reload."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.etcd.etcd_faults import Fault, StatusCode
from penstock.cluster.etcd.etcd_messages import Header, Revised, WatchMessage
from penstock.cluster.etcd.watch_state import WatchAction, WatchState
from penstock.cluster.stores.port import CompactedError, Event, EventBatch
from penstock.core.errors import StoreError


def message(
    *events: Revised,
    is_created: bool = False,
    is_canceled: bool = False,
    compact_revision: int = 0,
    reason: str = "",
    is_fragment: bool = False,
) -> WatchMessage:
    return WatchMessage(
        Header(1, 1, 99, 1), is_created, is_canceled, compact_revision, reason, is_fragment, events
    )


def change(revision: int, key: str) -> Revised:
    return Revised(revision, Event(key, None))


histories = st.lists(
    st.lists(st.sampled_from("abcde"), min_size=1, max_size=3, unique=True), max_size=12
)


@given(histories, st.data())
def test_streams_that_break_anywhere_lose_and_double_nothing(
    history: list[list[str]], data: st.DataObject
) -> None:
    """A simulated etcd: streams start where the watch says, and end after any message."""
    expected = [
        EventBatch(revision, tuple(Event(key, None) for key in sorted(keys)))
        for revision, keys in enumerate(history, 1)
    ]
    state = WatchState(0, has_credentials=False)
    delivered: list[EventBatch] = []
    for _ in range(data.draw(st.integers(1, 8))):
        state.opening()
        rest = [change(batch.revision, event.key) for batch in expected for event in batch.events]
        rest = [revised for revised in rest if revised.revision >= state.next_revision]
        assert not state.take(message(is_created=True)).batches
        while rest and data.draw(st.integers(0, 3)) > 0:
            last = rest[data.draw(st.integers(0, len(rest) - 1))].revision
            sent = [revised for revised in rest if revised.revision <= last]
            rest = [revised for revised in rest if revised.revision > last]
            cut = data.draw(st.integers(0, len(sent)))
            state.take(message(*sent[:cut], is_fragment=True))
            if data.draw(st.booleans()) and cut:
                break
            delivered.extend(state.take(message(*sent[cut:])).batches)
            state.take(message())
        assert state.failed(Fault(StatusCode.UNAVAILABLE, "cut")) is WatchAction.MOVE
    assert delivered == expected[: len(delivered)]
    assert state.next_revision == len(delivered) + 1
    state.opening()
    missing = expected[len(delivered) :]
    rest = [change(batch.revision, event.key) for batch in missing for event in batch.events]
    assert [*delivered, *state.take(message(*rest)).batches] == expected


def test_a_refused_watch_is_not_an_open_one() -> None:
    state = WatchState(5, has_credentials=False)
    refused = message(is_created=True, is_canceled=True, reason="etcdserver: permission denied")
    with pytest.raises(StoreError, match=r"refused to watch .*grant its role"):
        state.take(refused)


@pytest.mark.parametrize(
    "reason", ["etcdserver: permission denied", "etcdserver: invalid auth token"]
)
def test_a_refused_watch_gets_three_new_tokens(reason: str) -> None:
    state = WatchState(5, has_credentials=True)
    refused = message(is_created=True, is_canceled=True, reason=reason)
    for _ in range(3):
        assert state.take(refused).action is WatchAction.AUTHENTICATE
        state.authenticated()
    with pytest.raises(StoreError, match="refused to watch"):
        state.take(refused)


def test_a_token_that_did_not_come_does_not_count() -> None:
    state = WatchState(5, has_credentials=True)
    refused = message(is_canceled=True, reason="etcdserver: invalid auth token")
    for _ in range(9):
        assert state.take(refused).action is WatchAction.AUTHENTICATE
        assert state.authentication_failed(Fault(None, "cut")) is WatchAction.MOVE
    off = Fault(StatusCode.FAILED_PRECONDITION, "etcdserver: authentication is not enabled")
    assert state.authentication_failed(off) is WatchAction.MOVE
    wrong = Fault(StatusCode.INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID")
    with pytest.raises(StoreError, match="refused to watch"):
        state.authentication_failed(wrong)


def test_a_watch_that_was_open_gets_a_new_token_again() -> None:
    state = WatchState(5, has_credentials=True)
    expired = Fault(StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token")
    for _ in range(9):
        assert state.failed(expired) is WatchAction.AUTHENTICATE
        state.authenticated()
        state.take(message(is_created=True))


@pytest.mark.parametrize(
    "cancel",
    [
        message(is_canceled=True, compact_revision=9),
        message(is_canceled=True, reason="etcdserver: mvcc: required revision has been compacted"),
    ],
)
def test_compaction(cancel: WatchMessage) -> None:
    state = WatchState(5, has_credentials=False)
    state.take(message(is_created=True))
    with pytest.raises(CompactedError, match="since revision 5"):
        state.take(cancel)


def test_a_watch_canceled_for_another_reason_moves() -> None:
    state = WatchState(5, has_credentials=False)
    assert state.take(message(is_canceled=True)).action is WatchAction.MOVE
    no_leader = message(is_canceled=True, reason="etcdserver: no leader")
    assert state.take(no_leader).action is WatchAction.MOVE
    assert state.failures == 2
    state.take(message(is_created=True))
    assert state.failures == 0


def test_a_change_after_its_revision_was_delivered_is_not_dropped() -> None:
    state = WatchState(5, has_credentials=False)
    state.take(message(change(5, "/a")))
    with pytest.raises(CompactedError, match="revision 5 came when 6 was expected"):
        state.take(message(change(5, "/b")))


def test_progress_moves_nothing() -> None:
    state = WatchState(5, has_credentials=False)
    state.take(message(is_created=True))
    assert state.take(message()).batches == []
    assert state.next_revision == 5


def test_faults_that_no_member_helps_with() -> None:
    state = WatchState(5, has_credentials=False)
    with pytest.raises(CompactedError):
        state.failed(Fault(StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max"))
    with pytest.raises(CompactedError):
        state.failed(
            Fault(StatusCode.OUT_OF_RANGE, "etcdserver: x required revision has been compacted")
        )
    with pytest.raises(StoreError, match="refused"):
        state.failed(Fault(StatusCode.UNIMPLEMENTED, "unknown service"))
