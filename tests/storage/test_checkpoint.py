"""Checkpoints: the text, and all or nothing at any crash."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import StorageError
from penstock.core.types import TopicPartition
from penstock.storage.disk.checkpoint import format_offsets, parse_offsets, replace_file
from penstock.testing.recording_disk import Fate, RecordingDisk

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=20)


@settings(deadline=None)
@given(st.dictionaries(st.builds(TopicPartition, TOPICS, st.integers(0, 9_999)), st.integers(0)))
def test_offsets_come_back(offsets: dict[TopicPartition, int]) -> None:
    assert parse_offsets(format_offsets(offsets)) == offsets


def test_an_empty_file_is_kafkas_at_its_first_start() -> None:
    assert parse_offsets(b"") == {}


def test_kafkas_text() -> None:
    text = format_offsets({TopicPartition("orders", 0): 1_200, TopicPartition("a-b", 1): 7})
    assert text == b"0\n2\norders 0 1200\na-b 1 7\n"


@pytest.mark.parametrize(
    "data", [b"0", b"1\n0\n", b"0\n1\n", b"0\n1\na 1\n", b"0\n1\na b c\n", b"\xff"]
)
def test_a_damaged_checkpoint_is_refused(data: bytes) -> None:
    with pytest.raises(StorageError):
        parse_offsets(data)


def test_a_crash_leaves_the_old_content_or_the_new() -> None:
    disk = RecordingDisk()
    disk.make_directory("/d")
    disk.sync_directory("/")
    replace_file(disk, "/d", "point", b"old old old")
    begun = len(disk.changes)
    replace_file(disk, "/d", "point", b"new")
    for count in range(begun, len(disk.changes) + 1):
        for fate in Fate:
            for seed in range(5):
                content = disk.after(count, fate, seed).read_file("/d/point")
                assert content in (b"old old old", b"new")
    assert disk.after(len(disk.changes), Fate.LOST).read_file("/d/point") == b"new"
