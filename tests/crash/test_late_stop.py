"""A stop that reaches its deadline is as safe as a crash, at every cut; with a marker it is not."""

import pytest

from penstock.core.stopping import StopDeadline
from penstock.storage import log_manager
from penstock.testing.recording_disk import RecordingDisk
from tests.crash.workload import EVENTS, ORDERS, SETTINGS, Recorder, first_failure
from tests.storage.logs import Clock, open_manager


def record_late_stop() -> Recorder:
    """Records that are acknowledged and records that are not, then a stop without any time."""
    recorder = Recorder(RecordingDisk())
    recorder.create(ORDERS)
    recorder.create(EVENTS)
    for _ in range(6):
        recorder.append(ORDERS, 1, producer=7)
    recorder.flush()
    for _ in range(6):
        recorder.append(ORDERS, 1, producer=7)
    recorder.append(EVENTS, 0, producer=9)
    late = StopDeadline(Clock(), 0.0)
    late.begin()
    recorder.manager.close(late)
    recorder.note()
    recorder.manager = open_manager(recorder.disk, SETTINGS)
    recorder.note()
    recorder.append(ORDERS, 2, producer=7)
    recorder.flush()
    return recorder


def test_no_cut_around_a_late_stop_loses_what_was_acknowledged() -> None:
    assert first_failure(record_late_stop().history, step=1) == ""


@pytest.mark.uncompiled
def test_a_marker_after_a_late_stop_would_break_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the rule of `clean_close`: no marker unless everything owed is synced."""
    monkeypatch.setattr(log_manager, "close_directory", lambda *_: True)
    assert first_failure(record_late_stop().history, step=1) != ""
