"""The push session: its conversation frame by frame, its limits, its end."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.edge.push import limits
from penstock.edge.push.reactions import (
    Authenticate,
    Close,
    Commit,
    Ended,
    Open,
    OpenedTopic,
    Publish,
    Send,
)
from penstock.edge.push.session import PushSession
from penstock.edge.push.session_core import State
from penstock.protocol.push.data import encode_data, encode_tail
from penstock.protocol.push.frames import FrameType, encode_frame
from penstock.protocol.push.payloads import Credentials, Refusal, SubscribeRequest
from tests.edge.push.push_scene import Scene, answer, run_of, sent, subscribe_frame

GROUPED = SubscribeRequest(topic="t", group="g", credit=3)
TOPIC = OpenedTopic(2, {0: 5, 1: 0}, 1_000, {1: 0}, {})


def record(subscription: int, message_id: int, value: bytes = b"v", partition: int = -1) -> bytes:
    """Return a DATA frame that publishes."""
    return encode_data(subscription, message_id, encode_tail(partition, -1, -1, -1, 0, None, value))


# --- A conversation ---


def test_a_conversation() -> None:
    session = PushSession(0.0, needs_credentials=True)
    login = SubscribeRequest(
        topic="t",
        group="g",
        credentials=Credentials(user="u", password="p"),
    )
    assert session.receive(subscribe_frame(1, login), 1.0) == [Authenticate(login.credentials)]
    assert session.is_reading_paused
    assert session.authenticated(2.0) == [Open(1, login)]
    assert session.state.name == "AUTHENTICATED"
    opened = session.opened(1, TOPIC, 3.0)
    assert session.state.name == "SUBSCRIBED"
    assert answer(opened[:1]) == {
        "subscription": 1,
        "partitions": {"0": 5, "1": 0},
        "partition_count": 2,
    }
    # The start of a group without a commit is committed.
    assert opened[1:] == [Commit(1, "g", "t", {1: 0}, None)]
    assert session.committed(1, None, 3.1) == []

    wanted = session.next_read()
    assert wanted is not None
    assert (wanted.topic, wanted.partition, wanted.offset) == ("t", 0, 5)
    frames, _ = session.deliver(wanted, run_of(0, 5, [b"a", b"b"]), 65_536, 4.0)
    assert b"".join(frames)[:1] == b"\x01"
    acknowledged = session.receive(encode_frame(FrameType.ACK, 2), 5.0)
    assert acknowledged == [Commit(1, "g", "t", {0: 7}, None)]

    (published,) = session.receive(record(1, 7), 6.0)
    assert isinstance(published, Publish)
    assert [(one.message_id, one.topic) for one in published.records] == [(7, "t")]
    assert answer(session.published([(7, 1, 30)], 6.1)) == {"partition": 1, "offset": 30}

    session.receive(encode_frame(FrameType.DISCONNECT, 8), 7.0)
    assert session.state.name == "DRAINING"  # a commit is in progress
    last, closing = session.committed(1, None, 7.1)
    assert isinstance(last, Send)
    assert sent([last])[0].type is FrameType.DISCONNECT
    assert isinstance(closing, Close)
    assert session.state.name == "CLOSED"


# --- Authentication ---


def test_frames_behind_the_credentials_wait_for_their_check() -> None:
    session = PushSession(0.0, needs_credentials=True)
    second = SubscribeRequest(topic="other")
    data = subscribe_frame(1, GROUPED) + subscribe_frame(2, second)
    assert session.receive(data, 0.0) == [Authenticate(None)]
    assert session.authenticated(1.0) == [Open(1, GROUPED), Open(2, second)]


def test_wrong_credentials_end_the_session() -> None:
    session = PushSession(0.0, needs_credentials=True)
    session.receive(subscribe_frame(1, GROUPED) + subscribe_frame(2, GROUPED), 0.0)
    refused = session.authentication_failed("no", 1.0)
    kinds = [one.type for one in sent(refused)]
    assert kinds == [FrameType.ACK, FrameType.DISCONNECT]
    assert isinstance(refused[-1], Close)
    assert session.receive(subscribe_frame(3, GROUPED), 2.0) == []


@pytest.mark.parametrize(
    "frame",
    [
        encode_frame(FrameType.ACK, 0),
        encode_frame(FrameType.HEARTBEAT, 0),
        encode_frame(FrameType.COMMIT_OFFSET, 1, b'{"t":{"0":1}}'),
    ],
)
def test_no_other_frame_is_accepted_before_the_login(frame: bytes) -> None:
    session = PushSession(0.0, needs_credentials=True)
    reactions = session.receive(frame, 0.0)
    (ending,) = sent(reactions)
    assert "before the client was authenticated" in json.loads(ending.payload)["reason"]
    assert session.state is State.CLOSED


def test_a_large_frame_before_the_login_ends_the_session() -> None:
    session = PushSession(0.0, needs_credentials=True)
    head = encode_frame(FrameType.SUBSCRIBE, 1)[:9] + (limits.FIRST_FRAME_BYTES_MAX + 1).to_bytes(4)
    (ending,) = sent(session.receive(head, 0.0))
    assert "at most 65536" in json.loads(ending.payload)["reason"]


def test_the_session_ends_with_its_credentials() -> None:
    session = PushSession(0.0, needs_credentials=True)
    session.receive(subscribe_frame(1, SubscribeRequest(topic="t")), 0.0)
    session.authenticated(0.0, expires_at=30.0)
    assert session.check_at() <= 30.0
    assert not session.is_ending
    session.tick(29.9)
    assert not session.is_ending
    (ending,) = sent(session.tick(30.0))
    assert json.loads(ending.payload)["reason"] == "the credentials expired"


# --- Subscriptions ---


def test_a_refused_subscription_leaves_the_session_open() -> None:
    session = PushSession(0.0, needs_credentials=False)
    session.receive(subscribe_frame(1, GROUPED), 0.0)
    refusal = Refusal(error="no", code="TOPIC_AUTHORIZATION_FAILED")
    assert answer(session.open_refused(1, refusal)) == {
        "error": "no",
        "code": "TOPIC_AUTHORIZATION_FAILED",
        "retriable": False,
    }
    assert session.receive(subscribe_frame(2, GROUPED), 1.0) == [Open(2, GROUPED)]


def test_a_topic_is_subscribed_once_and_published_once() -> None:
    scene = Scene(GROUPED)
    refused = answer(scene.session.receive(subscribe_frame(5, GROUPED), 0.0))
    assert "already" in str(refused["error"])
    publishing = SubscribeRequest(topic="t", publish=True)
    assert scene.session.receive(subscribe_frame(6, publishing), 0.0) == [Open(2, publishing)]


def test_subscriptions_are_bounded() -> None:
    session = PushSession(0.0, needs_credentials=False)
    for number in range(limits.SUBSCRIPTIONS_MAX):
        session.receive(subscribe_frame(number, SubscribeRequest(topic=f"t{number}")), 0.0)
    refused = answer(session.receive(subscribe_frame(99, SubscribeRequest(topic="x")), 0.0))
    assert refused["error"] == "a session has at most 64 subscriptions"


def test_committed_needs_a_group() -> None:
    session = PushSession(0.0, needs_credentials=False)
    request = SubscribeRequest(topic="t", start="committed")
    assert "needs a 'group'" in str(
        answer(session.receive(subscribe_frame(1, request), 0.0))["error"]
    )


def test_unsubscribe_is_answered_after_the_commit() -> None:
    scene = Scene(GROUPED)
    scene.append(0, [b"a"])
    scene.turn()
    scene.ack(1)
    ends = subscribe_frame(9, SubscribeRequest(topic="t", is_unsubscribe=True))
    assert scene.session.receive(ends, scene.now) == []
    done = scene.session.committed(scene.number, None, scene.now)
    assert done[0] == Ended(scene.number)
    assert answer(done) == {"unsubscribed": "t"}
    assert not scene.session.subscriptions


def test_unsubscribe_waits_for_a_commit_that_is_retried() -> None:
    scene = Scene(GROUPED)
    scene.append(0, [b"a"])
    scene.turn()
    scene.ack(1)
    ends = subscribe_frame(9, SubscribeRequest(topic="t", is_unsubscribe=True))
    scene.session.receive(ends, scene.now)
    busy = Refusal(error="busy", code="COORDINATOR_LOAD_IN_PROGRESS", retriable=True)
    assert scene.session.commit_refused(scene.number, None, busy, scene.now) == []
    assert scene.tick(limits.COMMIT_INTERVAL_SECONDS)
    assert scene.commits[-1].offsets == {0: 1}
    assert answer(scene.session.committed(scene.number, None, scene.now)) == {"unsubscribed": "t"}


def test_other_bytes_than_frames_end_the_session() -> None:
    scene = Scene(GROUPED)
    reactions = scene.session.receive(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", scene.now)
    assert "type 71 is unknown" in json.loads(sent(reactions)[0].payload)["reason"]
    assert isinstance(reactions[-1], Close)


def test_a_refresh_is_refused() -> None:
    scene = Scene(GROUPED)
    refused = answer(scene.session.receive(encode_frame(FrameType.RESET, 4, b"{}"), scene.now))
    assert "RESET has the fields" in str(refused["error"])


# --- Credit and acknowledgement ---


def test_credit_stops_the_reads() -> None:
    scene = Scene(GROUPED)
    scene.append(0, [b"%d" % number for number in range(10)])
    assert scene.turn() == 3
    assert scene.session.next_read() is None
    scene.ack(2)
    assert scene.turn() == 2
    assert [data.offset for _, data in scene.delivered] == [0, 1, 2, 3, 4]


def test_unacknowledged_bytes_stop_the_reads() -> None:
    scene = Scene(SubscribeRequest(topic="t", credit=100))
    for _ in range(20):
        scene.append(0, [bytes(1_000_000)])
    assert scene.turn() == limits.UNACKNOWLEDGED_BYTES_MAX // 1_000_100
    assert scene.session.unacknowledged_bytes <= limits.UNACKNOWLEDGED_BYTES_MAX
    scene.ack(1)
    assert scene.turn() == 1


def test_a_batch_above_the_credit_is_delivered_alone() -> None:
    scene = Scene(SubscribeRequest(topic="t", credit=3, format="batch"))
    scene.append(0, [b"a"] * 5)
    scene.append(0, [b"b"] * 2)
    assert scene.turn() == 1
    assert scene.turn() == 0
    scene.ack(1)
    assert scene.turn() == 1


def test_a_batch_within_the_credit_waits_for_its_turn() -> None:
    scene = Scene(SubscribeRequest(topic="t", credit=3, format="batch"))
    for _ in range(2):
        scene.append(0, [b"a"] * 2)
    assert scene.turn() == 1
    scene.ack(1)
    assert scene.turn() == 1


def test_auto_ack_acknowledges_what_the_socket_accepted() -> None:
    scene = Scene(SubscribeRequest(topic="t", group="g", credit=3, auto_ack=True))
    scene.append(0, [b"a"] * 5)
    assert scene.turn() == 3
    scene.collect(scene.session.sent(scene.now))
    assert scene.commits[-1].offsets == {0: 3}
    assert scene.turn() == 2


def test_an_ack_of_the_future_ends_the_session() -> None:
    scene = Scene(GROUPED)
    reactions = scene.ack(1)
    assert "the last one sent is 0" in json.loads(sent(reactions)[0].payload)["reason"]


def test_an_ack_twice_changes_nothing() -> None:
    scene = Scene(GROUPED)
    scene.append(0, [b"a", b"b"])
    scene.turn()
    scene.ack(2)
    assert scene.ack(1) == []
    assert scene.ack(2) == []
    assert scene.session.subscriptions[scene.number].credit_used == 0


@pytest.mark.parametrize("payload", [b"\x02", b"\x03", b"\x04"])
def test_fanout_cannot_release_a_record(payload: bytes) -> None:
    scene = Scene(GROUPED)
    scene.append(0, [b"a"])
    scene.turn()
    reactions = scene.ack(1, payload)
    assert "only accepts (1)" in json.loads(sent(reactions)[0].payload)["reason"]


def test_an_ack_belongs_to_the_subscription_of_its_record() -> None:
    scene = Scene(SubscribeRequest(topic="t", credit=3))
    scene.append(0, [b"a", b"b"])
    scene.turn()
    other = SubscribeRequest(topic="u", group="h", credit=3)
    scene.session.receive(subscribe_frame(2, other), scene.now)
    scene.session.opened(2, OpenedTopic(1, {0: 0}, 1_000, {}, {}), scene.now)
    wanted = scene.session.next_read()
    while wanted is not None and wanted.number != 2:
        wanted = scene.session.next_read()
    assert wanted is not None
    scene.session.deliver(wanted, run_of(0, 0, [b"x"]), 65_536, scene.now)
    scene.ack(3)
    assert scene.session.subscriptions[2].credit_used == 0
    assert scene.session.subscriptions[scene.number].credit_used == 2


# --- Publish ---


def test_publishes_of_one_read_are_one_reaction() -> None:
    scene = Scene(GROUPED, partitions=2)
    (publish,) = scene.session.receive(record(1, 5) + record(1, 6), scene.now)
    assert isinstance(publish, Publish)
    assert [one.message_id for one in publish.records] == [5, 6]


def test_a_publish_to_a_missing_partition_is_refused() -> None:
    scene = Scene(GROUPED, partitions=2)
    refused = answer(scene.session.receive(record(1, 5, partition=2), scene.now))
    assert refused["code"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_publish_without_a_subscription_ends_the_session() -> None:
    scene = Scene(GROUPED)
    reactions = scene.session.receive(record(44, 5), scene.now)
    assert "subscription 44, which is not open" in json.loads(sent(reactions)[0].payload)["reason"]


def test_a_publish_above_the_size_of_the_topic_is_refused_before_it_is_received() -> None:
    session = PushSession(0.0, needs_credentials=False)
    session.receive(subscribe_frame(1, SubscribeRequest(topic="t", publish=True)), 0.0)
    session.opened(1, OpenedTopic(1, {}, 100, {}, {}), 0.0)
    reactions = session.receive(record(1, 2, bytes(200))[:20], 0.0)
    assert "at most 100 are accepted" in json.loads(sent(reactions)[0].payload)["reason"]


def test_reading_pauses_at_the_bound_of_publishes() -> None:
    scene = Scene(GROUPED)
    count = limits.PUBLISHES_IN_FLIGHT_MAX
    frames = b"".join(record(1, number) for number in range(count + 1))
    (publish,) = scene.session.receive(frames, scene.now)
    assert isinstance(publish, Publish)
    assert len(publish.records) == count
    assert scene.session.is_reading_paused
    answered, later = scene.session.published([(0, 0, 0)], scene.now)
    assert isinstance(answered, Send)
    assert isinstance(later, Publish)  # the frame that waited


def test_a_session_ends_when_its_publishes_are_answered() -> None:
    scene = Scene(GROUPED)
    scene.session.receive(record(1, 5) + encode_frame(FrameType.DISCONNECT, 6), scene.now)
    assert scene.session.state is State.DRAINING
    done = scene.session.published([(5, 0, 1)], scene.now)
    assert [one.type for one in sent(done)] == [FrameType.ACK, FrameType.DISCONNECT]
    assert isinstance(done[-1], Close)


# --- Commits ---


def test_commits_are_paced() -> None:
    scene = Scene(SubscribeRequest(topic="t", group="g", credit=100))
    scene.append(0, [b"a"] * 10)
    scene.turn()
    scene.ack(1)
    scene.session.committed(scene.number, None, scene.now)
    scene.ack(2)
    scene.ack(3)
    assert [one.offsets for one in scene.commits] == [{0: 1}]
    scene.tick(limits.COMMIT_INTERVAL_SECONDS)
    assert [one.offsets for one in scene.commits] == [{0: 1}, {0: 3}]


def test_a_refused_commit_is_repeated() -> None:
    scene = Scene(GROUPED)
    scene.append(0, [b"a"])
    scene.turn()
    scene.ack(1)
    refusal = Refusal(error="busy", code="NOT_COORDINATOR", retriable=True)
    assert scene.session.commit_refused(scene.number, None, refusal, scene.now) == []
    scene.tick(limits.COMMIT_INTERVAL_SECONDS)
    assert [one.offsets for one in scene.commits] == [{0: 1}, {0: 1}]


def test_a_commit_that_cannot_succeed_ends_the_session() -> None:
    scene = Scene(GROUPED)
    scene.append(0, [b"a"])
    scene.turn()
    scene.ack(1)
    refusal = Refusal(error="denied", code="GROUP_AUTHORIZATION_FAILED")
    reactions = scene.session.commit_refused(scene.number, None, refusal, scene.now)
    assert json.loads(sent(reactions)[0].payload)["code"] == "GROUP_AUTHORIZATION_FAILED"
    assert isinstance(reactions[-1], Close)


def test_commit_offset_of_several_topics_is_answered_once() -> None:
    scene = Scene(GROUPED)
    other = SubscribeRequest(topic="u", group="h")
    scene.session.receive(subscribe_frame(2, other), scene.now)
    scene.session.opened(2, OpenedTopic(1, {0: 0}, 1_000, {}, {}), scene.now)
    frame = encode_frame(FrameType.COMMIT_OFFSET, 9, b'{"t":{"0":4},"u":{"0":5}}')
    assert scene.session.receive(frame, scene.now) == [
        Commit(1, "g", "t", {0: 4}, 9),
        Commit(2, "h", "u", {0: 5}, 9),
    ]
    refusal = Refusal(error="no", code="X")
    assert scene.session.commit_refused(1, 9, refusal, scene.now) == []
    assert answer(scene.session.committed(2, 9, scene.now))["error"] == "no"


def test_commit_offset_needs_a_subscription_with_a_group() -> None:
    scene = Scene(SubscribeRequest(topic="t"))
    frame = encode_frame(FrameType.COMMIT_OFFSET, 9, b'{"t":{"0":4}}')
    assert "no subscription with a group" in str(
        answer(scene.session.receive(frame, scene.now))["error"]
    )


def test_a_lost_connection_commits_what_was_acknowledged() -> None:
    scene = Scene(GROUPED)
    scene.append(0, [b"a", b"b", b"c"])
    scene.turn()
    scene.ack(1)
    scene.session.committed(scene.number, None, scene.now)
    scene.ack(2)
    assert scene.session.connection_lost(scene.now) == [Commit(1, "g", "t", {0: 2}, None)]


# --- Time ---


def test_the_first_frame_must_come() -> None:
    session = PushSession(0.0, needs_credentials=False)
    assert session.check_at() == limits.FIRST_FRAME_SECONDS_MAX
    assert session.tick(9.9) == []
    reactions = session.tick(10.0)
    assert "within 10 s" in json.loads(sent(reactions)[0].payload)["reason"]
    assert isinstance(reactions[-1], Close)


def test_heartbeats() -> None:
    scene = Scene(GROUPED)
    assert sent(scene.tick(15.0))[0].type is FrameType.HEARTBEAT
    assert scene.tick(14.0) == []
    scene.session.receive(encode_frame(FrameType.HEARTBEAT, 0), scene.now)
    for _ in range(2):
        scene.tick(15.0)
        assert not scene.session.is_ending
    ending = [one for one in sent(scene.tick(15.0)) if one.type is FrameType.DISCONNECT]
    assert "for 45 s" in json.loads(ending[0].payload)["reason"]


def test_a_stop_says_why_and_when_to_come_back() -> None:
    scene = Scene(GROUPED)
    reactions = scene.session.drain("the broker stops", "BROKER_NOT_AVAILABLE", 700, scene.now)
    assert json.loads(sent(reactions)[0].payload) == {
        "reason": "the broker stops",
        "code": "BROKER_NOT_AVAILABLE",
        "retry_after_ms": 700,
    }


def test_a_commit_that_hangs_does_not_keep_the_session() -> None:
    scene = Scene(GROUPED)
    scene.append(0, [b"a"])
    scene.turn()
    scene.ack(1)
    scene.session.drain("stop", "X", 0, scene.now)
    assert scene.tick(limits.DRAIN_SECONDS_MAX - 0.1) == []
    assert isinstance(scene.tick(0.2)[-1], Close)


# --- The model ---

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 6)),
        st.tuples(st.just("turn"), st.integers(1, 400), st.just(0)),
        st.tuples(st.just("ack"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("commit"), st.booleans().map(int), st.just(0)),
        st.tuples(st.just("tick"), st.integers(0, 20), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=50)
@given(STEPS, st.integers(1, 8), st.sampled_from(["record", "batch"]))
def test_nothing_is_lost_doubled_or_committed_early(
    steps: list[tuple[str, int, int]], credit: int, form: str
) -> None:
    scene = Scene(
        SubscribeRequest(topic="t", group="g", credit=credit, format=form),  # type: ignore[arg-type]
        partitions=3,
    )
    acknowledged = 0
    committed = dict.fromkeys(range(3), 0)
    for kind, first, second in steps:
        match kind:
            case "append":
                scene.append(first, [b"v"] * second)
            case "turn":
                scene.turn(first)
            case "ack" if scene.delivered:
                acknowledged = max(acknowledged, first % (len(scene.delivered) + 1))
                scene.ack(acknowledged)
            case "commit":
                subscription = scene.session.subscriptions[scene.number]
                if subscription.committing is not None:
                    if first:
                        committed |= subscription.committing
                        scene.collect(scene.session.committed(scene.number, None, scene.now))
                    else:
                        refusal = Refusal(error="busy", code="X", retriable=True)
                        scene.collect(
                            scene.session.commit_refused(scene.number, None, refusal, scene.now)
                        )
            case "tick":
                scene.session.receive(encode_frame(FrameType.HEARTBEAT, 0), scene.now)
                scene.tick(first / 10)
        _check(scene, acknowledged, committed)
    for _ in range(100):
        scene.turn()
        scene.ack(len(scene.delivered))
    offsets = {p: [d.offset for _, d in scene.delivered if d.partition == p] for p in range(3)}
    runs = {p: [run.offset for run in scene.runs[p]] for p in range(3)}
    expected = runs if form == "batch" else {p: list(range(scene.ends[p])) for p in range(3)}
    assert offsets == expected


def _check(scene: Scene, acknowledged: int, committed: dict[int, int]) -> None:
    assert [message_id for message_id, _ in scene.delivered] == list(
        range(1, len(scene.delivered) + 1)
    )
    for partition in range(3):
        waiting = [
            data.offset
            for message_id, data in scene.delivered
            if data.partition == partition and message_id > acknowledged
        ]
        assert committed[partition] <= min(waiting, default=scene.ends[partition])
