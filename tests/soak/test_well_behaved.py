"""A request counts for the phase in which it was due, however late its answer is."""

import pytest

from tests.soak.well_behaved import Paced


def test_a_late_answer_counts_for_the_phase_of_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards figures of an attack: a backlog of its preparation was counted as its own."""
    now = 10.0
    monkeypatch.setattr("tests.soak.well_behaved.time.perf_counter", lambda: now)
    client = Paced(0)
    monkeypatch.setattr(client._thread, "start", lambda: None)
    client.begin("idle")
    now = 20.0
    client.begin("attack")
    now = 21.0
    client._note(due=19.0)
    client._note(due=20.5)
    assert list(client.times["idle"]) == [pytest.approx(2_000.0)]
    assert list(client.times["attack"]) == [pytest.approx(500.0)]
