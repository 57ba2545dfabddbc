"""Queue subscriptions of a push session: credit, acknowledgements, locks, the end. Pure."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.edge.push.queue_subscription import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    QueuedRecord,
    QueueSubscription,
)
from penstock.edge.push.reactions import Close, Ended, OpenedTopic, Reaction, Settle, Settled
from penstock.edge.push.session import PushSession
from penstock.protocol.push.data import decode_data, encode_tail, with_delivery_count
from penstock.protocol.push.frames import FrameType, encode_frame
from penstock.protocol.push.payloads import SubscribeRequest
from tests.edge.push.push_scene import answer, frames_of, sent, subscribe_frame

LOCK_SECONDS = 30.0


def queue_topic(lock_seconds: float = LOCK_SECONDS) -> OpenedTopic:
    """Return the topic of a queue."""
    return OpenedTopic(1, {}, 1_000_000, {}, {}, queue_group="q", lock_seconds=lock_seconds)


class QueueScene:
    """A session with one queue subscription."""

    def __init__(self, credit: int = 3, *, auto_ack: bool = False) -> None:
        self.now = 100.0
        self.session = PushSession(self.now, needs_credentials=False)
        request = SubscribeRequest(topic="t", mode="queue", credit=credit, auto_ack=auto_ack)
        self.session.receive(subscribe_frame(1, request), self.now)
        self.opened = self.session.opened(1, queue_topic(), self.now)
        self.next_offset = 0

    @property
    def queue(self) -> QueueSubscription:
        """The subscription."""
        found = self.session.subscriptions[1]
        assert isinstance(found, QueueSubscription)
        return found

    def deliver(self, count: int) -> list[int]:
        """Deliver records, and return their message ids."""
        records = [
            QueuedRecord(0, offset, encode_tail(0, offset, 0, 0, 1, None, b"v"))
            for offset in range(self.next_offset, self.next_offset + count)
        ]
        self.next_offset += count
        frames, _ = self.session.deliver_queued(1, records, self.now)
        self.session.validate()
        return [one.message_id for one in frames_of(b"".join(frames))]

    def ack(self, message_id: int, kind: int | None = None) -> list[Settled]:
        """Send an ACK, and return the acknowledgements for the share group."""
        payload = b"" if kind is None else bytes([kind])
        frame = encode_frame(FrameType.ACK, message_id, payload)
        return settles(self.session.receive(frame, self.now))

    def stored(self, settled: list[Settled], *, is_stored: bool = True) -> list[Reaction]:
        """Report the outcome of the share group."""
        found = self.session.queue_settled(1, settled, self.now, is_stored=is_stored)
        self.session.validate()
        return found


def settles(reactions: list[Reaction]) -> list[Settled]:
    """Return the acknowledgements in reactions."""
    return [one for r in reactions if isinstance(r, Settle) for one in r.settled]


def test_the_answer_names_the_group_and_the_lock() -> None:
    scene = QueueScene()
    assert answer(scene.opened) == {
        "subscription": 1,
        "partitions": {},
        "partition_count": 1,
        "mode": "queue",
        "group": "q",
        "lock_ms": 30_000,
    }
    assert scene.session.next_read() is None


def test_credit_bounds_the_records_in_flight() -> None:
    scene = QueueScene(credit=3)
    assert scene.session.queue_credit(1)[0] == 3
    first, *_ = scene.deliver(2)
    assert scene.session.queue_credit(1)[0] == 1
    scene.deliver(1)
    assert scene.session.queue_credit(1)[0] == 0
    scene.ack(first)
    assert scene.session.queue_credit(1)[0] == 1


@pytest.mark.parametrize("kind", [None, ACCEPT, RELEASE, REJECT])
def test_an_acknowledgement_is_for_one_record(kind: int | None) -> None:
    scene = QueueScene()
    scene.deliver(3)
    assert scene.ack(2, kind) == [Settled(2, 0, 1, kind or ACCEPT)]
    assert scene.ack(2, kind) == []
    assert scene.queue.unacknowledged_count == 2


def test_a_renewal_keeps_credit_and_extends_the_lock_when_it_is_stored() -> None:
    scene = QueueScene()
    scene.deliver(2)
    scene.now += LOCK_SECONDS - 1
    renewed = scene.ack(1, RENEW)
    assert renewed == [Settled(1, 0, 0, RENEW)]
    assert scene.ack(1, RENEW) == [], "one renewal at a time"
    scene.stored(renewed)
    scene.now += 2
    scene.session.tick(scene.now)
    assert scene.queue.unacknowledged_count == 1
    assert scene.ack(2) == []
    assert scene.ack(1) == [Settled(1, 0, 0, ACCEPT)]
    assert scene.session.expired_records == 1


def test_a_refused_renewal_extends_nothing() -> None:
    scene = QueueScene()
    scene.deliver(1)
    scene.now += LOCK_SECONDS - 1
    scene.stored(scene.ack(1, RENEW), is_stored=False)
    scene.now += 1
    assert scene.session.check_at() <= scene.now
    scene.session.tick(scene.now)
    assert scene.queue.unacknowledged_count == 0


def test_unsubscribe_and_disconnect_wait_for_the_share_group() -> None:
    scene = QueueScene()
    scene.deliver(2)
    settled = scene.ack(1)
    asked = scene.session.receive(
        subscribe_frame(9, SubscribeRequest(topic="t", is_unsubscribe=True)), scene.now
    )
    assert sent(asked) == []
    done = scene.stored(settled)
    assert answer(done) == {"unsubscribed": "t"}
    assert Ended(1) in done

    scene = QueueScene()
    scene.deliver(1)
    settled = scene.ack(1)
    assert not scene.session.receive(encode_frame(FrameType.DISCONNECT, 9), scene.now)
    assert any(isinstance(one, Close) for one in scene.stored(settled))


def test_auto_ack_accepts_what_was_sent() -> None:
    scene = QueueScene(auto_ack=True)
    scene.deliver(2)
    assert [one.kind for one in settles(scene.session.sent(scene.now))] == [ACCEPT, ACCEPT]


def test_the_delivery_count_is_in_the_frame() -> None:
    tail = with_delivery_count(encode_tail(1, 7, 5, 3, 0, b"k", b"v", (("h", b"x"),)), 4)
    found = decode_data(b"\x00\x09" + tail)
    assert (found.delivery_count, found.offset, found.leader_epoch) == (4, 7, 3)
    assert (found.key, found.value, found.headers) == (b"k", b"v", (("h", b"x"),))


def test_interleaved_subscriptions_use_bounded_memory() -> None:
    """A delivery that stays unacknowledged does not keep the runs of all later ones."""
    session = PushSession(0.0, needs_credentials=False)
    for number, name in enumerate(("stuck", "b", "c"), 1):
        request = SubscribeRequest(topic=name, mode="queue", credit=10)
        session.receive(subscribe_frame(number, request), 0.0)
        session.opened(number, queue_topic(1e9), 0.0)
    record = [QueuedRecord(0, 0, encode_tail(0, 0, 0, 0, 1, None, b"v"))]
    session.deliver_queued(1, record, 0.0)
    for message_id in range(2, 10_000):
        session.deliver_queued(2 + message_id % 2, record, 0.0)
        session.receive(encode_frame(FrameType.ACK, message_id), 0.0)
    session.validate()
    assert len(session._owners) <= 2_048
    assert settles(session.receive(encode_frame(FrameType.ACK, 1), 0.0))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 30)), max_size=60))
def test_each_record_is_settled_at_most_once_for_good(steps: list[tuple[int, int]]) -> None:
    scene = QueueScene(credit=5)
    pending: list[Settled] = []
    final: set[int] = set()
    for action, number in steps:
        if action == 0:
            scene.deliver(min(number, scene.session.queue_credit(1)[0]))
        elif action == 1:
            if pending:
                scene.stored([pending.pop()], is_stored=bool(number % 2))
        elif action == 2:
            scene.now += number
            # The silence of the client is not the subject.
            scene.session.receive(encode_frame(FrameType.HEARTBEAT, 0), scene.now)
            scene.session.tick(scene.now)
        elif number <= scene.session._last_id:
            for one in scene.ack(number, RENEW if action == 3 else ACCEPT):
                pending.append(one)
                if one.kind != RENEW:
                    assert one.message_id not in final
                    final.add(one.message_id)
        scene.session.validate()
        assert scene.queue.unacknowledged_count <= 5
