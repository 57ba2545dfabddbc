"""Stolen time is counted once; a request is left out only if some was stolen after it was due."""

from array import array
from pathlib import Path

import pytest

from tests.soak.stolen_time import StolenTime
from tests.soak.well_behaved import Paced


def stat(file: Path, stolen: int) -> Path:
    file.write_text(f"cpu  808017 110953 128773 1325832 24849 0 18461 {stolen} 0 0\ncpu0 1 2\n")
    return file


def test_stolen_time_is_counted_once(tmp_path: Path) -> None:
    file = stat(tmp_path / "stat", 7)
    host = StolenTime(file)
    assert host.seconds() == 0
    stat(file, 9)
    assert host.seconds() == pytest.approx(0.02)
    assert host.seconds() == 0


def test_a_system_without_the_count_has_no_stolen_time(tmp_path: Path) -> None:
    assert StolenTime(tmp_path / "absent").seconds() == 0


def test_requests_that_became_due_after_the_theft_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards an overloaded broker: its late requests were all left out after one theft."""
    now = 10.0
    monkeypatch.setattr("tests.soak.well_behaved.time.perf_counter", lambda: now)
    file = stat(tmp_path / "stat", 7)
    client = Paced(0, host=StolenTime(file))
    client.times["none"] = array("d")
    stat(file, 8)
    client._note(due=9.9)
    assert client.disturbed["none"] == 1
    client._note(due=9.95)
    assert client.disturbed["none"] == 2, "it became due before the theft was seen"
    now = 11.0
    client._note(due=10.5)
    assert list(client.times["none"]) == [pytest.approx(500.0)]
