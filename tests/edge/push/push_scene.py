"""A push session with a plain log behind it, for tests without an event loop."""

import json
from collections.abc import Iterable

from penstock.edge.push.reactions import Commit, Open, OpenedTopic, Reaction, Send
from penstock.edge.push.record_runs import LogRead, Run, batch_run, record_run
from penstock.edge.push.session import PushSession
from penstock.protocol.push.data import PushData, decode_data
from penstock.protocol.push.frames import Frame, FrameReader, FrameType, encode_frame
from penstock.protocol.push.payloads import SubscribeRequest, write_subscribe
from penstock.records.builder import build_batch
from penstock.records.record import Record

VERSION = (b"topic", 0, 0)


def frames_of(data: bytes) -> list[Frame]:
    """Return the frames of bytes."""
    reader = FrameReader(2**30)
    reader.feed(data)
    found = []
    while (frame := reader.next_frame()) is not None:
        found.append(frame)
    assert reader.held_bytes == 0
    return found


def sent(reactions: Iterable[Reaction]) -> list[Frame]:
    """Return the frames that reactions send."""
    return frames_of(b"".join(one.data for one in reactions if isinstance(one, Send)))


def answer(reactions: Iterable[Reaction]) -> dict[str, object]:
    """Return the JSON of the one ACK in reactions."""
    (frame,) = [one for one in sent(reactions) if one.type is FrameType.ACK]
    found = json.loads(frame.payload)
    assert isinstance(found, dict)
    return found


def subscribe_frame(message_id: int, request: SubscribeRequest) -> bytes:
    """Return a SUBSCRIBE frame."""
    return encode_frame(FrameType.SUBSCRIBE, message_id, write_subscribe(request))


def run_of(
    partition: int, base_offset: int, values: Iterable[bytes | None], *, is_batch: bool = False
) -> Run:
    """Return a run of one batch."""
    records = [Record(b"k", value, (), 1_000) for value in values]
    batch = bytes(build_batch(records, base_offset=base_offset, leader_epoch=4))
    read = LogRead(partition, base_offset, batch, (), VERSION)
    return batch_run(read) if is_batch else record_run(read)


class Scene:
    """A session with one subscription, and a log of runs."""

    def __init__(self, request: SubscribeRequest, partitions: int = 1) -> None:
        self.now = 100.0
        self.session = PushSession(self.now, needs_credentials=False)
        self.runs: dict[int, list[Run]] = {index: [] for index in range(partitions)}
        self.ends = dict.fromkeys(range(partitions), 0)
        self.delivered: list[tuple[int, PushData]] = []
        self.commits: list[Commit] = []
        self.is_batch = request.format == "batch"
        (opening,) = self.session.receive(subscribe_frame(1, request), self.now)
        assert isinstance(opening, Open)
        self.number = opening.number
        topic = OpenedTopic(partitions, dict(self.ends), 1_000_000, {}, {})
        self.opened = self.session.opened(self.number, topic, self.now)
        self.collect(self.opened)

    def collect(self, reactions: list[Reaction]) -> list[Reaction]:
        """Keep the commits of reactions."""
        self.commits += [one for one in reactions if isinstance(one, Commit)]
        self.session.validate()
        return reactions

    def append(self, partition: int, values: list[bytes | None]) -> None:
        """Add a batch to the log."""
        self.runs[partition].append(
            run_of(partition, self.ends[partition], values, is_batch=self.is_batch)
        )
        self.ends[partition] += len(values)
        self.session.news(self.number, partition)

    def turn(self, bytes_max: int = 65_536) -> int:
        """Deliver until the session wants no more; return the number of frames."""
        count, blocked = 0, 0
        while blocked < 3 and (wanted := self.session.next_read()) is not None:
            run = next(
                (r for r in self.runs[wanted.partition] if wanted.offset < r.next_offset), None
            )
            if run is None:
                continue
            found, _ = self.session.deliver(wanted, run, bytes_max, self.now)
            frames = frames_of(b"".join(found))
            self.delivered += [(one.message_id, decode_data(one.payload)) for one in frames]
            count += len(frames)
            blocked = 0 if frames else blocked + 1
            self.session.validate()
        return count

    def ack(self, message_id: int, payload: bytes = b"") -> list[Reaction]:
        """Send an ACK."""
        frame = encode_frame(FrameType.ACK, message_id, payload)
        return self.collect(self.session.receive(frame, self.now))

    def tick(self, seconds: float) -> list[Reaction]:
        """Let time pass."""
        self.now += seconds
        return self.collect(self.session.tick(self.now))
