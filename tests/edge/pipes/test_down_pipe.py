"""The phases of a mirrored partition, and a model: the copy is a part of the parent's log."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.edge.pipes.common_end import BatchMark, CommonEnd
from penstock.edge.pipes.down_pipe import (
    Append,
    Check,
    Compare,
    Copy,
    Cut,
    DownPipe,
    EpochEnd,
    LookAgain,
    OnGap,
    OwnLog,
    ParentLog,
    Phase,
    Problem,
    Refresh,
    Rest,
    Restart,
    asked_epoch,
)
from penstock.protocol.error_codes import ErrorCode

TOPIC_ID, OTHER_ID = UUID(int=1), UUID(int=2)
UNKNOWN = EpochEnd(-1, -1)


def checking(on_gap: OnGap = OnGap.STOP, *, is_verifying: bool = False) -> DownPipe:
    pipe = DownPipe(TOPIC_ID, on_gap, is_verifying=is_verifying)
    assert pipe.connected() == Check()
    return pipe


def copying() -> DownPipe:
    pipe = checking()
    own, epoch = OwnLog(0, 10, 1), EpochEnd(1, 10)
    assert pipe.checked(ParentLog(TOPIC_ID, 0, 10, epoch), own, epoch) == Copy()
    return pipe


def test_a_parent_that_contradicts_itself_is_not_asked_in_a_loop() -> None:
    """Its check says equal, and its fetch says diverged: an empty log after a gap, or a defect."""
    pipe, own, epoch = copying(), OwnLog(0, 10, 1), EpochEnd(1, 10)
    assert answered(pipe, ErrorCode.NONE, has_diverged=True) == Check()
    assert pipe.checked(ParentLog(TOPIC_ID, 0, 10, epoch), own, epoch) == Copy()
    assert isinstance(answered(pipe, ErrorCode.NONE, has_diverged=True), LookAgain)
    assert pipe.phase is Phase.WAITING


def test_equal_histories_are_copied() -> None:
    assert copying().phase is Phase.COPYING


def test_another_topic_id_stops_the_pipe_for_good() -> None:
    pipe = checking()
    found = ParentLog(OTHER_ID, 0, 10, EpochEnd(0, 10))
    assert pipe.checked(found, OwnLog(0, 10, 0), EpochEnd(0, 10)) == Rest()
    assert pipe.phase is Phase.STOPPED
    assert pipe.problem is not None
    assert "recreated" in pipe.problem.reason
    assert pipe.connected() == Rest()
    pipe.lost()
    assert pipe.phase is Phase.STOPPED


@pytest.mark.parametrize(
    ("epoch_end", "shared", "action"),
    [
        (EpochEnd(1, 7), EpochEnd(1, 10), Cut(7)),  # the parent is shorter
        (EpochEnd(0, 9), EpochEnd(0, 5), Cut(5)),  # the own epoch 1 is unknown to the parent
        (EpochEnd(0, 0), EpochEnd(0, 5), Restart(0)),  # nothing is common
        (EpochEnd(1, 10), UNKNOWN, Restart(0)),
        (EpochEnd(1, 12), EpochEnd(1, 10), Copy()),
    ],
)
def test_histories_are_compared_by_epochs(
    epoch_end: EpochEnd, shared: EpochEnd, action: object
) -> None:
    found = ParentLog(TOPIC_ID, 0, 12, epoch_end)
    assert checking().checked(found, OwnLog(0, 10, 1), shared) == action


def test_records_that_are_not_readable_yet_are_not_cut() -> None:
    pipe = checking()
    found = ParentLog(TOPIC_ID, 0, 8, EpochEnd(1, 10))
    assert isinstance(pipe.checked(found, OwnLog(0, 10, 1), EpochEnd(1, 10)), LookAgain)
    assert pipe.phase is Phase.WAITING


@pytest.mark.parametrize("epoch_end", [UNKNOWN, EpochEnd(0, 10)])
def test_records_that_the_parent_has_deleted_are_kept_and_reported(epoch_end: EpochEnd) -> None:
    """A parent from an old backup has other records, and no longer the ones that differ."""
    pipe = checking(is_verifying=True)
    own, parent = OwnLog(0, 10, 0), ParentLog(TOPIC_ID, 10, 30, epoch_end)
    assert pipe.checked(parent, own, EpochEnd(0, 10)) == Copy()
    assert pipe.unproven_end == 10


def test_without_a_common_epoch_batches_are_compared_also_after_compaction() -> None:
    """A parent from an old backup does not know the newest epoch of the own records."""
    pipe = checking(is_verifying=False)
    parent = ParentLog(TOPIC_ID, 0, 30, UNKNOWN)
    assert pipe.checked(parent, OwnLog(0, 10, 3), UNKNOWN) == Compare()


def test_a_comparable_or_empty_log_has_no_unproven_records() -> None:
    pipe = checking()
    assert (
        pipe.checked(ParentLog(TOPIC_ID, 9, 30, EpochEnd(1, 30)), OwnLog(0, 10, 1), EpochEnd(1, 10))
        == Copy()
    )
    assert pipe.unproven_end == 0
    pipe = checking()
    assert (
        pipe.checked(ParentLog(TOPIC_ID, 10, 30, EpochEnd(1, 30)), OwnLog(10, 10, 1), UNKNOWN)
        == Copy()
    )
    assert pipe.unproven_end == 0


def test_batches_are_compared_after_epochs() -> None:
    pipe = checking(is_verifying=True)
    own, epoch = OwnLog(0, 10, 1), EpochEnd(1, 10)
    assert pipe.checked(ParentLog(TOPIC_ID, 0, 12, epoch), own, epoch) == Compare()
    assert pipe.compared(4, own) == Cut(4)
    assert pipe.phase is Phase.TRUNCATING
    assert pipe.cut() == Check()
    assert pipe.cut_records == 6


def test_a_first_copy_begins_where_the_parent_does() -> None:
    pipe = checking()
    assert pipe.checked(ParentLog(TOPIC_ID, 50, 60, UNKNOWN), OwnLog(0, 0, -1), UNKNOWN) == Restart(
        50
    )
    assert (pipe.gaps, pipe.problem) == (0, None)


@pytest.mark.parametrize("on_gap", OnGap)
def test_a_gap_is_never_silent(on_gap: OnGap) -> None:
    pipe = checking(on_gap)
    action = pipe.checked(ParentLog(TOPIC_ID, 50, 60, UNKNOWN), OwnLog(0, 10, 0), UNKNOWN)
    if on_gap is OnGap.SKIP:
        assert (action, pipe.gaps, pipe.gap_records) == (Restart(50), 1, 40)
    elif on_gap is OnGap.REFRESH:
        assert (action, pipe.phase) == (Refresh(50), Phase.TRUNCATING)
        pipe.cut_failed(Problem("no snapshot", "build one"))
        assert (pipe.phase, pipe.gaps) == (Phase.WAITING, 0)
        assert pipe.problem == Problem("no snapshot", "build one")
    else:
        assert (action, pipe.phase) == (Rest(), Phase.GAP)
        assert pipe.problem is not None
        assert "10 to 49" in pipe.problem.reason


def answered(pipe: DownPipe, code: ErrorCode, **given: bool) -> object:
    return pipe.answered(
        pipe.sent(),
        code,
        OwnLog(0, 10, 1),
        high_watermark=12,
        start_offset=0,
        has_diverged=given.get("has_diverged", False),
    )


def test_answers() -> None:
    assert answered(copying(), ErrorCode.NONE) == Append()
    assert answered(copying(), ErrorCode.OFFSET_OUT_OF_RANGE) == Check()
    assert answered(copying(), ErrorCode.NONE, has_diverged=True) == Check()
    assert answered(copying(), ErrorCode.FENCED_LEADER_EPOCH) == LookAgain("FENCED_LEADER_EPOCH")
    pipe = copying()
    answered(pipe, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert pipe.problem is not None
    assert "refuses" in pipe.problem.reason


def test_an_answer_of_an_earlier_request_is_dropped() -> None:
    pipe = copying()
    generation = pipe.sent()
    pipe.sent()
    late = pipe.answered(
        generation,
        ErrorCode.NONE,
        OwnLog(0, 10, 1),
        high_watermark=12,
        start_offset=0,
        has_diverged=False,
    )
    assert late == Rest()


# --- The model ---


class ModelLog:
    """A log as a list of batches, each of some offsets of one epoch with a content."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self.batches: list[BatchMark] = []

    def append(self, count: int, epoch: int, content: int) -> None:
        self.batches.append(BatchMark(self.end, self.end + count - 1, epoch, content))
        self.end += count

    def cut(self, offset: int) -> None:
        self.batches = [one for one in self.batches if one.last_offset < offset]
        self.end = self.batches[-1].last_offset + 1 if self.batches else max(self.start, 0)

    def restart(self, offset: int) -> None:
        self.batches, self.start, self.end = [], offset, offset

    def delete_below(self, offset: int) -> None:
        self.start = max(self.start, min(offset, self.end))
        self.batches = [one for one in self.batches if one.last_offset >= self.start]

    def copy(self) -> "ModelLog":
        found = ModelLog()
        found.start, found.end, found.batches = self.start, self.end, list(self.batches)
        return found

    @property
    def latest_epoch(self) -> int:
        return self.batches[-1].leader_epoch if self.batches else -1

    def epoch_end(self, epoch: int) -> EpochEnd:
        """As OffsetForLeaderEpoch answers it."""
        if not self.batches or epoch < 0 or epoch > self.latest_epoch:
            return UNKNOWN
        older = [one for one in self.batches if one.leader_epoch <= epoch]
        newer = [one for one in self.batches if one.leader_epoch > epoch]
        end = newer[0].base_offset if newer else self.end
        return EpochEnd(older[-1].leader_epoch if older else epoch, end)

    def at(self, offset: int) -> BatchMark | None:
        return next((one for one in self.batches if one.last_offset >= offset), None)


class World:
    """A parent whose history is rewritten, and a child with a pipe."""

    def __init__(self) -> None:
        self.parent, self.own = ModelLog(), ModelLog()
        self.backup = self.parent.copy()
        self.epoch, self.content = 0, 0
        self.pipe = DownPipe(TOPIC_ID, OnGap.SKIP, is_verifying=True)

    def produce(self, count: int) -> None:
        self.content += 1
        self.parent.append(count, self.epoch, self.content)

    def act(self, name: str, number: int) -> None:
        match name:
            case "produce":
                self.produce(number + 1)
            case "new leader":
                self.epoch += 1
                self.parent.cut(self.parent.end - number)
            case "back up":
                self.backup = self.parent.copy()
            case "restore":
                self.parent = self.backup.copy()
            case "retention":
                self.parent.delete_below(self.parent.start + number)
            case "own retention":
                self.own.delete_below(self.own.start + number)
            case "crash":
                self.pipe = DownPipe(TOPIC_ID, OnGap.SKIP, is_verifying=True)
            case "copy":
                self.pipe.connected()
                self.run(steps=number)

    def own_log(self) -> OwnLog:
        return OwnLog(self.own.start, self.own.end, self.own.latest_epoch)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.pipe.validate()
            if self.pipe.phase is Phase.CHECKING:
                self._check()
            elif self.pipe.phase is Phase.COPYING:
                self._fetch()

    def _check(self) -> None:
        before, own = self.own.end, self.own_log()
        asked = asked_epoch(own, self.parent.latest_epoch)
        end = self.parent.epoch_end(asked)
        found = ParentLog(TOPIC_ID, self.parent.start, self.parent.end, end)
        action = self.pipe.checked(found, own, self.own.epoch_end(end.epoch))
        if isinstance(action, Compare):
            search = CommonEnd(max(own.start_offset, self.parent.start), own.end_offset)
            while (probe := search.probe) is not None:
                search.compared(self.own.at(probe), self.parent.at(probe))
            action = self.pipe.compared(search.result, own)
        if isinstance(action, Cut):
            self.own.cut(action.offset)
            assert self.own.end < before, "each cut lowers the end"
            self.pipe.cut()
        elif isinstance(action, Restart):
            self.own.restart(action.offset)
            self.pipe.cut()

    def _fetch(self) -> None:
        generation = self.pipe.sent()
        batch = self.parent.at(self.own.end) if self.own.end < self.parent.end else None
        is_there = self.parent.start <= self.own.end <= self.parent.end
        action = self.pipe.answered(
            generation,
            ErrorCode.NONE if is_there else ErrorCode.OFFSET_OUT_OF_RANGE,
            self.own_log(),
            high_watermark=self.parent.end,
            start_offset=self.parent.start,
            has_diverged=False,
        )
        if isinstance(action, Append) and batch is not None:
            if batch.base_offset < self.own.end:  # the parent begins within a batch
                assert self.own.start == self.own.end
                self.own.restart(batch.base_offset)
            self.own.batches.append(batch)
            self.own.end = batch.last_offset + 1


ACTS = st.tuples(
    st.sampled_from(
        [
            "produce",
            "produce",
            "new leader",
            "back up",
            "restore",
            "retention",
            "own retention",
            "crash",
            "copy",
            "copy",
        ]
    ),
    st.integers(0, 6),
)


@given(st.lists(ACTS, max_size=40))
@settings(max_examples=100, deadline=None)
def test_the_copy_is_the_end_of_the_parents_log(acts: list[tuple[str, int]]) -> None:
    world = World()
    for act in acts:
        world.act(*act)
    world.pipe.connected()
    world.run(steps=400)
    assert world.pipe.phase is Phase.COPYING
    assert world.own.end == world.parent.end
    shared_start = max(world.own.start, world.parent.start)
    ours = [one for one in world.own.batches if one.last_offset >= shared_start]
    theirs = [one for one in world.parent.batches if one.last_offset >= shared_start]
    assert ours == theirs
