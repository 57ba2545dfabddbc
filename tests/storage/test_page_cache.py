"""Whether a range of a file is in memory: by one question to the kernel, and by reading bytes.

Guards that both ways agree, and that a kernel that does not know the question is not believed.
"""

import os
from pathlib import Path

import pytest

from penstock.storage.disk import filesystem
from penstock.storage.disk.filesystem import DiskFile, DiskFileSystem

DROPS_MAX = 1_000
SIZE = 1 << 20


@pytest.fixture
def file(tmp_path: Path) -> DiskFile:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(SIZE))
    opened = DiskFileSystem().open_file(str(path))
    assert isinstance(opened, DiskFile)
    opened.sync()
    return opened


def is_dropped(file: DiskFile) -> bool:
    """Whether the file leaves the page cache; the kernel keeps pages that it still writes."""
    for _ in range(DROPS_MAX):
        os.fsync(file.descriptor)
        os.posix_fadvise(file.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if not file.is_cached(0, SIZE):
            return True
    return False


@pytest.fixture(params=["kernel", "bytes"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "bytes":
        monkeypatch.setattr(filesystem, "_ask_kernel", None)
    else:
        pytest.importorskip("penstock.storage.native_cache")


@pytest.mark.usefixtures("way")
def test_what_was_just_written_is_in_memory(file: DiskFile) -> None:
    assert file.is_cached(0, SIZE)
    assert file.is_cached(4_095, 2)
    assert file.is_cached(SIZE - 1, 1)


@pytest.mark.usefixtures("way")
def test_what_was_dropped_is_not(file: DiskFile) -> None:
    assert is_dropped(file)
    file.load(0, SIZE)
    assert file.is_cached(0, SIZE)


@pytest.mark.usefixtures("way")
def test_behind_the_end_nothing_is_in_memory(file: DiskFile) -> None:
    assert not file.is_cached(0, SIZE + 1)
    assert not file.is_cached(SIZE, 4_096)


def test_a_kernel_that_does_not_know_is_not_believed(
    file: DiskFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "_ask_kernel", lambda *_: -1)
    assert file.is_cached(0, SIZE)
    assert is_dropped(file)
