"""Collections are small: survivors are not looked at again until a full collection is run."""

import gc
from collections.abc import Iterator

import pytest

from penstock.node import garbage


@pytest.fixture(autouse=True)
def own_schedule() -> Iterator[None]:
    """Python's schedule again after each test."""
    thresholds, was_enabled = gc.get_threshold(), gc.isenabled()
    callbacks = list(gc.callbacks)
    yield
    gc.callbacks[:] = callbacks
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    gc.collect()
    gc.freeze()  # As `tests.conftest`: else each later collection visits all tests.
    if not was_enabled:
        gc.disable()


class Node:
    """An object in a cycle."""

    def __init__(self) -> None:
        self.itself = self


def young_count() -> int:
    return sum(len(gc.get_objects(generation)) for generation in (0, 1, 2))


def test_survivors_of_two_collections_are_not_looked_at_again() -> None:
    garbage.calm()
    kept: list[list[int]] = [[] for _ in range(5_000)]
    gc.collect(0)
    gc.collect(1)
    assert young_count() < len(kept)
    assert gc.get_freeze_count() > len(kept)


@pytest.mark.parametrize(("long_seconds", "is_kept_apart"), [(0.0, True), (60.0, False)])
def test_survivors_of_a_long_collection_are_not_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, long_seconds: float, is_kept_apart: bool
) -> None:
    """Guards pauses: lists of 100,000 names were visited by two collections, 8 ms each."""
    garbage.calm()
    monkeypatch.setattr(garbage, "LONG_SECONDS", long_seconds)
    kept: list[list[int]] = [[] for _ in range(1_000)]
    gc.collect(0)
    assert (young_count() < len(kept)) == is_kept_apart


def test_python_never_begins_a_full_collection() -> None:
    garbage.calm()
    before = gc.get_stats()[2]["collections"]
    kept: list[list[list[int]]] = [[[] for _ in range(100)] for _ in range(5_000)]
    assert gc.get_stats()[1]["collections"] > 0
    assert gc.get_stats()[2]["collections"] == before
    assert len(kept) == 5_000


def test_a_full_collection_frees_cycles_that_became_garbage_late() -> None:
    garbage.calm()
    late = [Node() for _ in range(1_000)]
    gc.collect(1)
    del late
    gc.collect(1)
    assert garbage.collect_all() >= 1_000
