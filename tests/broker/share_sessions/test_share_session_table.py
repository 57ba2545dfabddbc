"""Share sessions: epochs, bounds and ends; a model compares random requests with plain sets."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.share_sessions.share_session_table import (
    EPOCH_MAX,
    FORGOTTEN_HELD_MAX,
    SharePartitionId,
    ShareSession,
    ShareSessions,
)
from penstock.protocol.error_codes import ErrorCode

TOPIC = UUID(int=7)


def ids(*numbers: int) -> list[SharePartitionId]:
    return [SharePartitionId(TOPIC, number) for number in numbers]


def opened(sessions: ShareSessions, member: str = "m", *numbers: int) -> ShareSession:
    session = sessions.begin_fetch("g", member, 0, ids(*numbers))
    assert isinstance(session, ShareSession)
    return session


def test_a_session_is_continued_by_its_epochs() -> None:
    sessions = ShareSessions()
    session = opened(sessions, "m", 0, 1)
    assert sessions.begin_fetch("g", "m", 1, ids(2), ids(0)) is session
    assert list(session.partitions) == ids(1, 2)
    assert sessions.begin_acknowledge("g", "m", 2) is session
    assert sessions.begin_fetch("g", "m", 2, ()) is ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_a_session_knows_the_partitions_of_its_records() -> None:
    """A forgotten partition may still have records of the member, and so may an older session."""
    sessions = ShareSessions()
    session = opened(sessions, "m", 0, 1)
    session.served(ids(0)[0])
    assert sessions.begin_fetch("g", "m", 1, (), ids(0)) is session
    assert session.held == set(ids(0))
    again = opened(sessions, "m", 1)
    assert again.held == set(ids(0))
    for one in ids(*range(FORGOTTEN_HELD_MAX + 1)):
        again.served(one)
    assert again.held is not None
    again.served(ids(FORGOTTEN_HELD_MAX + 1)[0])
    assert again.held is None, "the list is bounded; without it, any partition may have records"


def test_a_wrong_epoch_changes_nothing() -> None:
    sessions = ShareSessions()
    session = opened(sessions, "m", 0)
    wrong = sessions.begin_fetch("g", "m", 9, ids(1), ids(0))
    assert wrong is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert list(session.partitions) == ids(0)
    assert session.next_epoch == 1


def test_errors_without_a_session() -> None:
    sessions = ShareSessions()
    for epoch in (-1, 1, 5):
        assert sessions.begin_fetch("g", "m", epoch, ()) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert sessions.begin_acknowledge("g", "m", 0) is ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_acknowledgements_in_the_first_request() -> None:
    sessions = ShareSessions()
    outcome = sessions.begin_fetch("g", "m", 0, ids(0), has_acknowledgements=True)
    assert outcome is ErrorCode.INVALID_REQUEST
    assert len(sessions) == 0


def test_the_epoch_wraps_to_one() -> None:
    sessions = ShareSessions()
    session = opened(sessions)
    session.next_epoch = EPOCH_MAX
    assert sessions.begin_acknowledge("g", "m", EPOCH_MAX) is session
    assert session.next_epoch == 1


def test_a_replaced_session_cannot_close_the_new_one() -> None:
    sessions = ShareSessions()
    old, new = opened(sessions), opened(sessions)
    assert not sessions.close(old)
    assert sessions.has_group("g")
    assert sessions.close(new)
    assert not sessions.has_group("g")


def test_sessions_are_bounded() -> None:
    sessions = ShareSessions(sessions_max=2)
    opened(sessions, "a")
    opened(sessions, "b")
    refused = sessions.begin_fetch("g", "c", 0, ())
    assert refused is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    opened(sessions, "b")
    sessions.validate()


def test_partitions_are_bounded() -> None:
    sessions = ShareSessions(partitions_max=3)
    session = opened(sessions, "a", 0, 1)
    refused = sessions.begin_fetch("g", "b", 0, ids(0, 1))
    assert refused is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    refused = sessions.begin_fetch("g", "a", 1, ids(2, 3))
    assert refused is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert list(session.partitions) == ids(0, 1)
    sessions.validate()


def test_a_session_that_cannot_be_replaced_stays() -> None:
    sessions = ShareSessions(partitions_max=2)
    session = opened(sessions, "a", 0)
    refused = sessions.begin_fetch("g", "a", 0, ids(0, 1, 2))
    assert refused is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert sessions.is_open(session)
    assert sessions.is_open(opened(sessions, "a", 0, 1))
    assert not sessions.is_open(session)
    sessions.validate()


def test_a_partition_that_was_served_comes_last() -> None:
    sessions = ShareSessions()
    session = opened(sessions, "m", 0, 1, 2)
    session.served(ids(0)[0])
    session.served(ids(9)[0])
    assert list(session.partitions) == ids(1, 2, 0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.integers(-1, 3),
            st.sets(st.integers(0, 3)),
            st.sets(st.integers(0, 3)),
        )
    )
)
def test_model(requests: list[tuple[str, int, set[int], set[int]]]) -> None:
    sessions = ShareSessions(sessions_max=1)
    model: dict[str, tuple[int, set[int]]] = {}
    for member, epoch, named, forgotten in requests:
        outcome = sessions.begin_fetch("g", member, epoch, ids(*named), ids(*forgotten))
        sessions.validate()
        known = model.get(member)
        if epoch == 0:
            model.pop(member, None)
            if model:
                assert outcome is ErrorCode.SHARE_SESSION_LIMIT_REACHED
            else:
                model[member] = (1, set(named))
        elif known is None:
            assert outcome is ErrorCode.SHARE_SESSION_NOT_FOUND
        elif epoch == -1:
            assert isinstance(outcome, ShareSession)
            assert sessions.close(outcome)
            del model[member]
        elif epoch != known[0]:
            assert outcome is ErrorCode.INVALID_SHARE_SESSION_EPOCH
        else:
            model[member] = (epoch + 1, (known[1] | named) - forgotten)
        if isinstance(outcome, ShareSession) and member in model:
            assert {one.partition for one in outcome.partitions} == model[member][1]
