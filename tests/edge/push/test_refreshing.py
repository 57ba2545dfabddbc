"""Refreshes of a session: RESET, the data set below V, READY; positions and commits around them."""

import json
import random

import pytest

from penstock.edge.push import refreshing
from penstock.edge.push.reactions import Close, FindBounds, Reaction
from penstock.edge.push.refreshing import READY_SECONDS_MAX, RESET_SECONDS_MAX
from penstock.protocol.push.data import decode_data
from penstock.protocol.push.frames import Frame, FrameType, encode_frame
from penstock.protocol.push.payloads import SubscribeRequest
from tests.edge.push.push_scene import Scene, answer, frames_of, run_of, sent

REJECT = b"\x03"


class Refreshes(Scene):
    """A scene whose turns may contain READY."""

    def __init__(self, request: SubscribeRequest, partitions: int = 1) -> None:
        super().__init__(request, partitions)
        self.controls: list[Frame] = []

    def turn(self, bytes_max: int = 65_536) -> int:
        count = 0
        for _ in range(100):
            wanted = self.session.next_read()
            if wanted is None:
                break
            runs = self.runs[wanted.partition]
            run = next((one for one in runs if wanted.offset < one.next_offset), None)
            if run is None:
                continue
            found, _ = self.session.deliver(wanted, run, bytes_max, self.now)
            for frame in frames_of(b"".join(found)):
                self.note(frame)
                count += frame.type is FrameType.DATA
            self.session.validate()
        return count

    def note(self, frame: Frame) -> None:
        if frame.type is FrameType.DATA:
            self.delivered.append((frame.message_id, decode_data(frame.payload)))
        else:
            self.controls.append(frame)

    def begin(self) -> Frame:
        bounds = {at: (0, end) for at, end in self.ends.items()}
        (frame,) = sent(self.collect(self.session.begin_refresh(self.number, bounds, self.now)))
        assert frame.type is FrameType.RESET
        return frame

    def accept(self, frame: Frame) -> list[Reaction]:
        reactions = self.ack(frame.message_id)
        for one in sent(reactions):
            self.note(one)
        return reactions

    def offsets(self) -> list[tuple[int, int]]:
        found = [(data.partition, data.offset) for _, data in self.delivered]
        self.delivered.clear()
        return found


def group_scene(partitions: int = 1) -> Refreshes:
    scene = Refreshes(SubscribeRequest(topic="t", group="g", credit=1_000), partitions)
    for partition in range(partitions):
        scene.append(partition, [b"1", b"2", b"3"])
    scene.turn()
    scene.ack(scene.delivered[-1][0])
    scene.offsets()
    return scene


def commit_done(scene: Scene) -> None:
    scene.collect(scene.session.committed(scene.number, None, scene.now))


def test_a_refresh_sends_reset_the_data_set_and_ready_then_live_records() -> None:
    scene = group_scene(2)
    commit_done(scene)
    reset = scene.begin()
    document = json.loads(reset.payload)
    assert document["V"] == {"0": 3, "1": 3}
    assert (document["records"], document["topic"]) == (6, "t")
    scene.append(0, [b"after V"])
    assert scene.turn() == 0
    scene.accept(reset)
    assert scene.turn() == 6
    assert sorted(scene.offsets()) == [(at, offset) for at in (0, 1) for offset in range(3)]
    (ready,) = scene.controls
    assert ready.type is FrameType.READY
    assert json.loads(ready.payload) == {
        "id": document["id"],
        "subscription": scene.number,
        "topic": "t",
        "V": {"0": 3, "1": 3},
    }
    assert scene.turn() == 0
    commits = len(scene.commits)
    scene.accept(ready)
    assert [one.offsets for one in scene.commits[commits:]] == [{0: 3, 1: 3}]
    assert scene.turn() == 1
    assert scene.offsets() == [(0, 3)]


def test_nothing_of_a_new_data_set_is_committed_before_ready() -> None:
    scene = group_scene()
    commit_done(scene)
    commits = len(scene.commits)
    scene.append(0, [b"4"])
    scene.turn()
    unread = scene.delivered[-1][0]
    reset = scene.begin()
    scene.accept(reset)
    scene.turn(1)
    scene.ack(scene.delivered[-1][0])
    scene.tick(5)
    # The record before RESET was acknowledged with it; the new data set was not.
    assert [one.offsets for one in scene.commits[commits:]] == [{0: 4}]
    assert unread < reset.message_id


def test_a_rejected_reset_changes_nothing() -> None:
    scene = group_scene()
    scene.append(0, [b"4"])
    reset = scene.begin()
    assert scene.turn() == 0
    scene.ack(reset.message_id, REJECT)
    scene.turn()
    assert scene.offsets() == [(0, 3)]
    assert scene.controls == []


def test_a_reset_without_an_answer_ends_in_time() -> None:
    scene = group_scene()
    scene.append(0, [b"4"])
    scene.begin()
    assert scene.session.check_at() <= scene.now + RESET_SECONDS_MAX
    scene.tick(RESET_SECONDS_MAX / 2)
    scene.session.receive(encode_frame(FrameType.HEARTBEAT, 0), scene.now)
    assert scene.turn() == 0
    scene.tick(RESET_SECONDS_MAX / 2)
    scene.turn()
    assert scene.offsets() == [(0, 3)]


def test_a_ready_without_an_answer_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refreshing, "READY_SECONDS_MAX", 20.0)
    scene = group_scene()
    scene.accept(scene.begin())
    scene.turn()
    scene.tick(19)
    assert not scene.session.is_ending
    assert any(isinstance(one, Close) for one in [*scene.tick(2), *scene.tick(10)])
    assert READY_SECONDS_MAX > RESET_SECONDS_MAX


def test_an_empty_topic_is_ready_at_once() -> None:
    scene = Refreshes(SubscribeRequest(topic="t"))
    scene.accept(scene.begin())
    assert [one.type for one in scene.controls] == [FrameType.READY]
    scene.accept(scene.controls[0])
    scene.append(0, [b"1"])
    assert scene.turn() == 1


def test_clients_ask_for_a_refresh_and_are_refused_with_reasons() -> None:
    scene = group_scene()

    def ask(payload: bytes) -> list[Reaction]:
        return scene.session.receive(encode_frame(FrameType.RESET, 9, payload), scene.now)

    assert "fields" in str(answer(ask(b'{"topic":"t","other":1}'))["error"])
    assert "not JSON" in str(answer(ask(b"\xff"))["error"])
    assert "no fanout subscription" in str(answer(ask(b'{"topic":"unknown"}'))["error"])
    assert "no fanout subscription" in str(answer(ask(b'{"topic":"t","group":"x"}'))["error"])
    assert ask(b'{"topic":"t","group":"g"}') == [FindBounds(scene.number, "t", 9)]
    begun = scene.session.begin_refresh(scene.number, {0: (0, 3)}, scene.now, 9)
    assert [one.type for one in sent(begun)] == [FrameType.ACK, FrameType.RESET]
    assert "no fanout subscription" in str(answer(ask(b'{"topic":"t"}'))["error"])
    again = scene.session.begin_refresh(scene.number, {0: (0, 3)}, scene.now, 10)
    assert "already" in str(answer(again)["error"])
    ready = scene.session.receive(encode_frame(FrameType.READY, 11, b"{}"), scene.now)
    assert "by the broker only" in str(answer(ready)["error"])


def test_a_wrong_answer_to_reset_ends_the_session() -> None:
    scene = group_scene()
    scene.ack(scene.begin().message_id, b"\x04")
    assert scene.session.is_ending


@pytest.mark.parametrize("seed", range(30))
def test_random_refreshes_deliver_each_data_set_whole_and_commit_only_whole_ones(seed: int) -> None:
    choice = random.Random(seed)
    scene = Refreshes(SubscribeRequest(topic="t", group="g", credit=choice.randrange(1, 9)), 2)
    old: dict[int, int] = {0: 0, 1: 0}
    """The next offset of the live data set of a client."""
    new: dict[int, int] | None = None
    ends: dict[int, int] = {}
    for _ in range(150):
        step = choice.random()
        if step < 0.3:
            scene.append(choice.randrange(2), [b"x"] * choice.randrange(1, 5))
        elif step < 0.4 and scene.session.refreshable("t", None):
            ends = dict(scene.ends)
            reset = scene.begin()
            if choice.random() < 0.3:
                scene.ack(reset.message_id, REJECT)
            else:
                new = {0: 0, 1: 0}
                scene.accept(reset)
        elif step < 0.8:
            scene.turn(choice.choice((1, 65_536)))
            for message_id, data in scene.delivered:
                position = old if new is None else new
                assert data.offset == position[data.partition], "a gap or a repetition"
                position[data.partition] += 1
                last = message_id
            if scene.delivered and choice.random() < 0.7:
                scene.ack(last)
            scene.delivered.clear()
        else:
            scene.tick(1.5)
            scene.session.receive(encode_frame(FrameType.HEARTBEAT, 0), scene.now)
        for one in scene.commits:
            assert all(offset <= old[at] for at, offset in one.offsets.items()), "too early"
            commit_done(scene)
        scene.commits.clear()
        for control in scene.controls:
            assert new == ends, "READY before the data set was whole"
            old, new = dict(ends), None
            scene.ack(control.message_id)
        scene.controls.clear()


def test_a_run_that_passes_the_end_of_the_data_set_is_delivered_up_to_it() -> None:
    scene = group_scene()
    reset = scene.begin()
    # A later read returns one batch with records on both sides of V.
    scene.runs[0] = [run_of(0, 0, [b"1", b"2", b"3", b"4", b"5"])]
    scene.ends[0] = 5
    scene.accept(reset)
    assert scene.turn() == 3
    assert scene.offsets() == [(0, 0), (0, 1), (0, 2)]
    scene.accept(scene.controls[0])
    assert scene.turn() == 2
    assert scene.offsets() == [(0, 3), (0, 4)]
