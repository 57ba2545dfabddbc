"""Samples of one seed are the same in each process, and the samples of all parts are all tests."""

from collections import Counter
from pathlib import Path

import pytest

from tests.sampling import is_sampled, part_of, recent_paths, seed_of_run

PARTS = 3
TESTS = [f"tests/test_some.py::test_{number}[{number}]" for number in range(300)]


def test_the_samples_are_disjoint_and_together_all_tests() -> None:
    seeds = {part_of(str(seed), PARTS): str(seed) for seed in range(20)}
    assert len(seeds) == PARTS
    samples = [[one for one in TESTS if is_sampled(one, seed, PARTS)] for seed in seeds.values()]
    assert Counter(one for sample in samples for one in sample) == Counter(TESTS)
    assert all(60 < len(sample) < 140 for sample in samples)


def test_a_sample_is_the_same_in_each_process() -> None:
    assert [part_of(one, PARTS) for one in TESTS[:12]] == [1, 2, 2, 1, 1, 2, 1, 1, 2, 2, 2, 1]


def test_files_that_changed_lately_run_whole() -> None:
    assert all(is_sampled(one, "1", PARTS, {"tests/test_some.py"}) for one in TESTS)
    assert not all(is_sampled(one, "1", PARTS, {"tests/test_other.py"}) for one in TESTS)


def test_one_part_is_everything() -> None:
    assert all(is_sampled(one, "1", 1) for one in TESTS)


def test_the_last_commit_is_the_seed_and_its_files_are_recent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_SAMPLE_SEED", "7")
    assert seed_of_run.__wrapped__() == "7"
    monkeypatch.delenv("PENSTOCK_SAMPLE_SEED")
    assert len(seed_of_run.__wrapped__()) == 40
    assert recent_paths()


def test_without_git_there_is_a_seed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each run of pytest asks for it, also in an archive of the source."""
    monkeypatch.delenv("PENSTOCK_SAMPLE_SEED", raising=False)
    monkeypatch.setattr("tests.sampling.ROOT", tmp_path)
    assert seed_of_run.__wrapped__() == "no commit"
