"""Only the owner can read the metadata store, which has the keys of SCRAM users."""

import asyncio
import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cluster.stores.port import Put
from penstock.cluster.stores.private_file import create_private, restrict_to_owner
from penstock.cluster.stores.sqlite_store import SqliteMetadataStore
from penstock.core.errors import StoreError

MODES = {"metadata.sqlite3": 0o600, "metadata.sqlite3-wal": 0o600}


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """The umask that would let everybody read and write."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite3"


def modes(folder: Path) -> dict[str, int]:
    return {one.name: stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()}


def modes_in_use(path: Path) -> dict[str, int]:
    """Write to the store, and return the modes of its files while it is open."""

    async def write() -> dict[str, int]:
        store = await SqliteMetadataStore.open(str(path))
        await store.transact((), (Put("/scram", b"key"),))
        found = modes(path.parent)
        assert [pair.value for pair in (await store.read("/scram")).values] == [b"key"]
        await store.close()
        return found

    return asyncio.run(write())


def test_a_new_store_belongs_to_its_owner(path: Path) -> None:
    assert modes_in_use(path) == MODES
    assert modes(path.parent) == {path.name: 0o600}


@pytest.mark.parametrize(("mode", "expected"), [(0o644, 0o600), (0o777, 0o700), (0o400, 0o400)])
def test_a_store_of_an_earlier_version_is_restricted(path: Path, mode: int, expected: int) -> None:
    modes_in_use(path)
    path.chmod(mode)
    if os.geteuid() == 0 or expected & stat.S_IWUSR:
        assert modes_in_use(path)[path.name] == expected


def test_the_log_of_a_store_that_was_killed_is_restricted(path: Path) -> None:
    async def copy() -> None:
        store = await SqliteMetadataStore.open(str(path))
        await store.transact((), (Put("/scram", b"key"),))
        folder = path.parent / "copy"
        folder.mkdir()
        for one in (path, path.with_name(f"{path.name}-wal")):
            (folder / one.name).write_bytes(one.read_bytes())
        await store.close()

    asyncio.run(copy())
    killed = path.parent / "copy" / path.name
    assert modes(killed.parent) == dict.fromkeys(MODES, 0o666)
    assert modes_in_use(killed) == MODES


def test_a_file_of_another_user_stays_as_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes_in_use(path)
    path.chmod(0o644)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    assert modes_in_use(path)[path.name] == 0o644


def test_a_disk_that_keeps_its_modes_is_no_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes_in_use(path)
    path.chmod(0o644)

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "chmod", refuse)
    assert modes_in_use(path)[path.name] == 0o644


def test_a_file_that_is_not_a_store_keeps_its_mode(path: Path) -> None:
    path.write_bytes(b"the diary of a user, and longer than SQLite's head" * 100)
    with pytest.raises(StoreError, match="not a database"):
        asyncio.run(SqliteMetadataStore.open(str(path)))
    assert modes(path.parent)[path.name] == 0o666


def test_the_lock_of_an_open_store_stays(path: Path) -> None:
    """Opening and closing a locked file would end it: a process has one lock for all of them."""
    program = f"import sqlite3; sqlite3.connect({str(path)!r}).execute('SELECT * FROM state')"

    async def look_from_outside() -> str:
        store = await SqliteMetadataStore.open(str(path))
        create_private(str(path))
        restrict_to_owner(str(path))
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True
        )
        await store.close()
        return done.stderr

    assert "database is locked" in asyncio.run(look_from_outside())
