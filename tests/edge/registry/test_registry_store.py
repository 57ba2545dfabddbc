"""The registry's file: everything comes back, other files are refused, one process has it."""

import sqlite3
import stat
from pathlib import Path

import pytest

from penstock.edge.registry.node_entry import NodeEntry, TopicPatterns
from penstock.edge.registry.node_roles import Role
from penstock.edge.registry.registry_errors import RegistryStoreError
from penstock.edge.registry.registry_store import RegistryStore

ENTRY = NodeEntry(
    id="store-1",
    identity="token:ab",
    wanted_role=Role.POS,
    chosen_role=Role.L3,
    parent="l2-1",
    pinned_parent="l2-2",
    addresses={"kafka": "host:9092"},
    labels={"region": "north", "name": "Straße"},
    version="1.2.3",
    instance=3,
    boot="b007",
    used_instance=2,
    revision=17,
    answer="digest",
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "registry.db")


def test_everything_comes_back(path: str) -> None:
    store = RegistryStore(path)
    assert store.load("first").entries == ()
    store.save(ENTRY, 17)
    store.save(NodeEntry("other", "token:x"), 18)
    store.save_level(Role.POS, TopicPatterns(("a", "b"), ("c",)))
    store.delete("other")
    store.close()
    store = RegistryStore(path)
    found = store.load("second")
    store.close()
    assert (found.registry_id, found.revision) == ("first", 18)
    assert found.entries == (ENTRY,)
    assert found.levels == {Role.POS: TopicPatterns(("a", "b"), ("c",))}


def test_only_the_owner_reads_it(path: str) -> None:
    store = RegistryStore(path)
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(f"{path}-wal").stat().st_mode) == 0o600
    store.close()


def test_it_is_durable_before_it_is_answered(path: str) -> None:
    store = RegistryStore(path)
    found = [
        store._database.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous")
    ]
    store.close()
    assert found == ["wal", 2]


def test_a_second_process_is_refused(path: str) -> None:
    store = RegistryStore(path)
    with pytest.raises(RegistryStoreError, match="locked") as caught:
        RegistryStore(path)
    assert "Another registry uses it" in caught.value.hint
    store.close()


def test_files_of_others_are_refused_and_not_changed(path: str) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()
    before = Path(path).read_bytes()
    with pytest.raises(RegistryStoreError, match="is not a registry of this version"):
        RegistryStore(path)
    assert Path(path).read_bytes() == before


def test_a_file_that_is_not_sqlite_is_refused(path: str) -> None:
    Path(path).write_bytes(b"not a database, and long enough" * 100)
    with pytest.raises(RegistryStoreError, match="cannot be opened"):
        RegistryStore(path)


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(RegistryStoreError, match="cannot be opened"):
        RegistryStore(str(tmp_path / "missing" / "registry.db"))


def test_a_row_that_is_not_valid_is_reported(path: str) -> None:
    store = RegistryStore(path)
    store.load("first")
    store.save(ENTRY, 1)
    store._database.execute("UPDATE nodes SET wanted_role = 'KING'")
    with pytest.raises(RegistryStoreError, match="a row that is not valid"):
        store.load("first")
    store.close()


def test_half_a_transaction_leaves_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RegistryStore(path)
    store.load("first")

    def fail(_revision: int) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(store, "_save_revision", fail)
    with pytest.raises(RegistryStoreError, match="disk I/O error"):
        store.save(ENTRY, 1)
    assert store.load("first").entries == ()
    store.close()
