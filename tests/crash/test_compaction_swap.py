"""A cut at any change of a compaction leaves the old segments or the new ones, never a mix.

And each guard of the swap is needed: without it a cut is found that breaks the promise.
"""

import os
from contextlib import suppress

import pytest

from penstock.storage.log.segment_swap import SWAP_SUFFIX, SegmentSwap
from penstock.testing.recording_disk import RecordingDisk, RecordingFile
from tests.crash.compaction_workload import check_cut, cuts, first_failure, record

FULL = os.environ.get("PENSTOCK_CRASH_FULL") == "1"


def test_a_sample_of_cuts() -> None:
    history = record(seed=1)
    every = list(cuts(history, 1))
    for cut in every[:: max(1, len(every) // 40)]:
        check_cut(history, *cut)


@pytest.mark.crash
@pytest.mark.parametrize("workload_seed", range(10 if FULL else 1))
def test_every_cut(workload_seed: int) -> None:
    history = record(seed=workload_seed)
    every = list(cuts(history))[:: 1 if FULL else 3]
    assert sum(check_cut(history, *cut) for cut in every) > 1_000


def no_sync_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of the swap, without a sync of the directory between them."""
    original_decide, original_finish = SegmentSwap.decide, SegmentSwap.finish

    def without_sync(swap: SegmentSwap, half: object) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(RecordingDisk, "sync_directory", lambda _self, _path: None)
            half(swap)  # type: ignore[operator]

    monkeypatch.setattr(SegmentSwap, "decide", lambda swap: without_sync(swap, original_decide))
    monkeypatch.setattr(SegmentSwap, "finish", lambda swap: without_sync(swap, original_finish))


def no_sync_of_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new segment gets its name before its bytes are on the disk."""
    original = RecordingFile.sync

    def sync(file: RecordingFile) -> None:
        if not file._path.endswith(".cleaned"):
            original(file)

    monkeypatch.setattr(RecordingFile, "sync", sync)


def names_before_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new segment gets its name while old ones that it replaces are still there."""
    original = SegmentSwap.finish

    def finish(swap: SegmentSwap) -> None:
        data, *_ = swap.new.places()
        data.rename("")
        swap._filesystem.sync_directory(swap._directory)
        old, swap.old = swap.old, swap.old[1:]
        data.begin_early("")
        with suppress(FileNotFoundError):
            original(swap)
        swap.old = old

    monkeypatch.setattr(SegmentSwap, "finish", finish)


def one_rename_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first steps, without the names of what was written being durable."""

    def decide(swap: SegmentSwap) -> None:
        for place in reversed(swap.new.places()):
            with suppress(FileNotFoundError):
                place.rename(SWAP_SUFFIX)
        swap._filesystem.sync_directory(swap._directory)

    monkeypatch.setattr(SegmentSwap, "decide", decide)


GUARDS = [no_sync_of_names, no_sync_of_data, names_before_removal, one_rename_after_the_other]


@pytest.mark.crash
@pytest.mark.parametrize("remove", GUARDS, ids=[guard.__name__ for guard in GUARDS])
def test_each_guard_of_the_swap_is_needed(remove: object, monkeypatch: pytest.MonkeyPatch) -> None:
    remove(monkeypatch)  # type: ignore[operator]
    history = record(seed=2)
    monkeypatch.undo()
    assert first_failure(history), "nothing breaks without this guard: it is not needed or unseen"
