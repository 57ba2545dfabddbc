"""`SessionRequests`: the publishes and the COMMIT_OFFSET requests of a push session. Pure.

A part of `session.PushSession`, over `session_core.SessionCore`. Guarantees: each request is
answered once with its message id, a publish when its record is on disk; above the bounds of
requests in progress the session handles no more frames.
"""

from collections.abc import Sequence
from typing import Final

from penstock.edge.push.reactions import Commit, Published, Reaction, Send
from penstock.edge.push.session_core import SessionCore, State
from penstock.protocol.push.data import decode_data
from penstock.protocol.push.frames import HEAD, Frame, FrameType, PushFrameError, encode_frame
from penstock.protocol.push.payloads import PushPayloadError, Refusal, read_commit, write_refusal

_ACK: Final = int(FrameType.ACK)


class SessionRequests(SessionCore):
    """Requests that append or commit."""

    # --- Publish ---

    def _data_bound(self, number: int) -> int:
        """Return the largest payload of a DATA frame of the client."""
        subscription = self.subscriptions.get(number)
        if subscription is None or not subscription.is_open:
            raise PushFrameError(f"a DATA frame names subscription {number}, which is not open")
        return subscription.message_bytes_max

    def _publish(self, frame: Frame, records: list[Published]) -> None:
        data = decode_data(frame.payload)
        subscription = self.subscriptions[data.subscription]
        if not -1 <= data.partition < subscription.partition_count:
            self._refuse(
                frame.message_id,
                f"{subscription.request.topic} has {subscription.partition_count} partitions, "
                f"there is no partition {data.partition}",
                "UNKNOWN_TOPIC_OR_PARTITION",
            )
            return
        size = len(frame.payload)
        if not self.publishes.begin(frame.message_id, size):
            raise PushFrameError(f"message id {frame.message_id} is used by a publish in progress")
        topic, count = subscription.request.topic, subscription.partition_count
        records.append(Published(frame.message_id, topic, data, size, count))

    def published(self, placed: Sequence[tuple[int, int, int]], now: float) -> list[Reaction]:
        """Published records are on disk: message id, partition and offset of each."""
        was_full, end, pack = self.publishes.is_full, self.publishes.end, HEAD.pack
        answers: list[bytes] = []
        for message_id, partition, offset in placed:
            end(message_id)
            payload = b'{"partition":%d,"offset":%d}' % (partition, offset)
            answers += (pack(_ACK, message_id, len(payload)), payload)
        return self._publishes_done(b"".join(answers), now, was_full=was_full)

    def publish_refused(self, message_id: int, refusal: Refusal, now: float) -> list[Reaction]:
        """A published record was not appended, or is not known to be on disk."""
        was_full = self.publishes.is_full
        self.publishes.end(message_id)
        answer = encode_frame(FrameType.ACK, message_id, write_refusal(refusal))
        return self._publishes_done(answer, now, was_full=was_full)

    def _publishes_done(self, answers: bytes, now: float, *, was_full: bool) -> list[Reaction]:
        if self.state is not State.CLOSED:
            self._reactions.append(Send(answers))
            self._last_sent_at = now
        if self.state is State.DRAINING:
            self._close_if_drained(now)
        if was_full and not self.is_ending:
            return self._handle_frames(now)
        return self._take()

    # --- Commits ---

    def _commit_offset(self, frame: Frame) -> None:
        try:
            offsets = read_commit(frame.payload)
        except PushPayloadError as error:
            self._refuse(frame.message_id, str(error))
            return
        by_topic = {
            one.request.topic: one
            for one in self.subscriptions.values()
            if one.is_open and one.has_group
        }
        missing = sorted(offsets.keys() - by_topic.keys())
        if missing:
            self._refuse(
                frame.message_id,
                f"COMMIT_OFFSET names {missing[0][:249]}, which has no subscription with a group "
                "in this session",
            )
            return
        if frame.message_id in self._commits:
            raise PushFrameError(f"message id {frame.message_id} is used by a commit in progress")
        self._commits[frame.message_id] = len(offsets), None
        for topic, positions in offsets.items():
            number, group = by_topic[topic].number, by_topic[topic].request.group
            assert group is not None
            self._reactions.append(Commit(number, group, topic, positions, frame.message_id))
