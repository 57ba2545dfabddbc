"""Frames of the push protocol: garbage is refused, and a session ends instead of failing.

Each `fuzz_*` takes any bytes and returns, or lets a bug escape (`tools/fuzz.py` runs them for
minutes). Accepted input survives being written again.
"""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import PenstockError
from penstock.edge.push.queue_subscription import QueuedRecord
from penstock.edge.push.reactions import (
    Authenticate,
    Commit,
    Open,
    OpenedTopic,
    Publish,
    Reaction,
    Settle,
)
from penstock.edge.push.record_runs import LogRead, batch_run, record_run
from penstock.edge.push.session import PushSession
from penstock.protocol.push.data import (
    BATCH,
    decode_data,
    encode_batch_tail,
    encode_data,
    encode_tail,
)
from penstock.protocol.push.frames import FrameReader, FrameType, PushFrameError, encode_frame
from penstock.protocol.push.payloads import (
    PushPayloadError,
    Refusal,
    SubscribeRequest,
    read_commit,
    read_subscribe,
    write_subscribe,
)
from penstock.records.builder import build_batch
from penstock.records.record import Record

SUBSCRIBE = write_subscribe(SubscribeRequest(topic="t", group="g", start={0: 1}, credit=5))
RECORD = encode_tail(0, -1, -1, -1, 0, b"key", b"value", (("name", b"x"), ("none", None)))
STREAM = (
    encode_frame(FrameType.SUBSCRIBE, 1, SUBSCRIBE)
    + encode_data(1, 2, RECORD)
    + encode_frame(FrameType.COMMIT_OFFSET, 3, b'{"t":{"0":7}}')
    + encode_frame(FrameType.ACK, 1)
    + encode_frame(FrameType.HEARTBEAT, 0)
    + encode_frame(FrameType.SUBSCRIBE, 4, b'{"unsubscribe":"t"}')
    + encode_frame(FrameType.DISCONNECT, 5)
)
BATCHES = bytes(build_batch([Record(b"k", b"v", (), 1)] * 3, codec=1)) + bytes(
    build_batch([Record(None, None, (), 1)], base_offset=3)
)
QUEUE_STREAM = (
    encode_frame(FrameType.SUBSCRIBE, 1, b'{"topic":"t","mode":"queue","credit":2}')
    + encode_frame(FrameType.ACK, 1, b"\x04")
    + encode_frame(FrameType.ACK, 1)
    + encode_frame(FrameType.ACK, 2, b"\x02")
    + encode_frame(FrameType.SUBSCRIBE, 2, b'{"unsubscribe":"t"}')
    + encode_frame(FrameType.DISCONNECT, 3)
)

CORPUS = {
    "fuzz_push_frames": [STREAM],
    "fuzz_push_data": [b"\0\1" + RECORD, b"\0\1" + encode_batch_tail(0, 1, 2, 3, b"batch")],
    "fuzz_push_payloads": [SUBSCRIBE, b'{"t":{"0":7}}', b'{"unsubscribe":"t"}'],
    "fuzz_push_session": [STREAM, QUEUE_STREAM],
    "fuzz_push_runs": [BATCHES],
}


def fuzz_push_frames(data: bytes) -> None:
    """Frames that are accepted are the bytes that came."""
    reader, written = FrameReader(1_000), b""
    reader.feed(data)
    try:
        while (frame := reader.next_frame()) is not None:
            written += encode_frame(*frame)
    except PushFrameError:
        pass
    assert data.startswith(written)


def fuzz_push_data(data: bytes) -> None:
    """A record that is accepted is written with the same bytes."""
    try:
        found = decode_data(data)
    except PushFrameError:
        return
    if found.kind != BATCH:
        tail = encode_tail(
            found.partition,
            found.offset,
            found.timestamp_ms,
            found.leader_epoch,
            found.delivery_count,
            found.key,
            found.value,
            found.headers,
        )
        assert data[2:] == tail


def fuzz_push_payloads(data: bytes) -> None:
    """A request that is accepted is read again as the same."""
    try:
        request = read_subscribe(data)
        assert read_subscribe(write_subscribe(request)) == request
    except PushPayloadError:
        pass
    with contextlib.suppress(PushPayloadError):
        read_commit(data)


def fuzz_push_runs(data: bytes) -> None:
    """Damaged batches of a log raise an error of ours."""
    for unfold in (record_run, batch_run):
        try:
            run = unfold(LogRead(0, 0, data, (), (b"", 0, 0)))
            assert len(run.nexts) == len(run.tails) == len(run.counts)
        except PenstockError:
            pass


def fuzz_push_session(data: bytes) -> None:
    """A session answers or ends, whatever comes; its invariants hold."""
    for needs_credentials in (False, True):
        session = PushSession(0.0, needs_credentials=needs_credentials)
        todo = session.receive(data, 0.0)
        for _ in range(1_000):
            session.validate()
            if not todo:
                break
            todo = _carry_out(session, todo.pop(0)) + todo
        session.connection_lost(1.0)
        session.validate()


QUEUED = [QueuedRecord(0, offset, encode_tail(0, offset, 0, 0, 1, None, b"v")) for offset in (0, 1)]


def _carry_out(session: PushSession, reaction: Reaction) -> list[Reaction]:
    match reaction:
        case Authenticate():
            return session.authenticated(0.0)
        case Open(number, request) if request.mode == "queue":
            queue = OpenedTopic(1, {}, 1_000, {}, {}, queue_group="q", lock_seconds=9.0)
            found = session.opened(number, queue, 0.0)
            session.deliver_queued(number, QUEUED[: session.queue_credit(number)[0]], 0.0)
            return found
        case Settle(number, settled):
            is_stored = bool(len(settled) % 2)
            return session.queue_settled(number, settled, 0.0, is_stored=is_stored)
        case Open(number, _):
            topic = OpenedTopic(2, {0: 0, 1: 0}, 1_000, {1: 0}, {})
            return session.opened(number, topic, 0.0)
        case Publish(records):
            found = []
            for one in records:
                found += session.published([(one.message_id, 0, 1)], 0.0)
            return found
        case Commit(number, _, _, offsets, message_id):
            if len(offsets) % 2:
                return session.committed(number, message_id, 0.0)
            return session.commit_refused(number, message_id, Refusal(error="", code=""), 0.0)
        case _:
            return []


TARGETS = [
    fuzz_push_frames,
    fuzz_push_data,
    fuzz_push_payloads,
    fuzz_push_runs,
    fuzz_push_session,
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
@given(st.data())
def test_garbage(target: type, data: st.DataObject) -> None:
    corpus = CORPUS[target.__name__]
    good = data.draw(st.sampled_from(corpus))
    at = data.draw(st.integers(0, len(good)))
    target(data.draw(st.binary(max_size=60)))
    target(good[:at] + data.draw(st.binary(max_size=8)) + good[at:])
    target(good[:at] + data.draw(st.binary(max_size=8)))
    target(good)
