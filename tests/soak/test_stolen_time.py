"""Stolen time is noticed once by each look, and a look that is none changes nothing."""

from pathlib import Path

from tests.soak.stolen_time import StolenTime


def stat(file: Path, stolen: int) -> Path:
    file.write_text(f"cpu  808017 110953 128773 1325832 24849 0 18461 {stolen} 0 0\ncpu0 1 2\n")
    return file


def test_stolen_time_is_noticed_by_one_look(tmp_path: Path) -> None:
    file = stat(tmp_path / "stat", 7)
    host = StolenTime(file)
    assert not host.look()
    stat(file, 8)
    assert host.was_stolen()
    assert host.was_stolen()
    assert host.look()
    assert not host.look()


def test_a_system_without_the_count_has_no_stolen_time(tmp_path: Path) -> None:
    assert not StolenTime(tmp_path / "absent").look()
