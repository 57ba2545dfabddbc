"""Tests that passed against Kafka are left out only while their content is the same."""

from pathlib import Path

import pytest

from tests.oracle import recorded_runs

PATH = "tests/broker/handlers/test_api_versions.py"


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_runs, "RECORD", tmp_path / "kafka_runs.txt")


@pytest.mark.usefixtures("record")
def test_a_recorded_file_is_left_out_with_the_same_content_and_number_of_tests() -> None:
    now = recorded_runs.content_of(PATH, 3)
    recorded_runs.write_record({PATH: now})
    assert recorded_runs.recorded_paths({PATH: 3}) == {PATH}
    assert recorded_runs.recorded_paths({PATH: 4}) == set()
    recorded_runs.write_record({PATH: now._replace(tests_hash=now.tests_hash[::-1])})
    assert recorded_runs.recorded_paths({PATH: 3}) == set()


@pytest.mark.usefixtures("record")
def test_a_file_whose_modules_of_penstock_changed_is_run_by_one_seed_of_four() -> None:
    now = recorded_runs.content_of(PATH, 3)
    recorded_runs.write_record({PATH: now._replace(all_hash=now.all_hash[::-1])})
    left_out = [bool(recorded_runs.recorded_paths({PATH: 3}, str(seed))) for seed in range(400)]
    assert 60 < left_out.count(False) < 140
    assert recorded_runs.recorded_paths({PATH: 4}, "0") == set()


@pytest.mark.usefixtures("record")
def test_a_file_without_a_record_runs() -> None:
    assert recorded_runs.recorded_paths({PATH: 3}) == set()


def test_the_content_is_what_a_test_imports_without_the_server() -> None:
    root = recorded_runs.ROOT
    files = {path.relative_to(root).as_posix() for path in recorded_runs._closure(root / PATH)}
    assert {PATH, "tests/conftest.py", "tests/broker/handlers/asker.py"} <= files
    assert "src/penstock/protocol/wire.py" in files
    assert not [path for path in files if path.startswith("src/penstock/broker/")]


def test_tests_that_start_programs_have_their_programs_in_the_content() -> None:
    root = recorded_runs.ROOT
    files = {path.name for path in recorded_runs._closure(root / "tests/interop/test_clients.py")}
    assert {"confluent_driver.py", "KafkaTools.java"} <= files


def test_tests_of_our_own_clients_are_always_run() -> None:
    assert not recorded_runs.is_recordable("tests/client/test_against_brokers.py")
    assert not recorded_runs.is_recordable("tests/interop/test_admin_port.py")
    assert recorded_runs.is_recordable(PATH)


def test_every_recorded_file_exists() -> None:
    missing = [
        path for path in recorded_runs.read_record() if not (recorded_runs.ROOT / path).is_file()
    ]
    assert missing == []
