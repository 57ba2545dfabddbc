"""Penstock allows, denies and hides as Apache Kafka does, in every cell of the matrix.

Fast tests run a sample of the cells: `none`, `full`, and one of five others. The test marked
`slow` runs all of them, and so does `PENSTOCK_MATRIX=full`. The test marked `interop` runs another
sample on Apache Kafka, so that the recording cannot become wrong unseen.
"""

import os
from pathlib import Path

import pytest

from penstock.broker.handlers import HANDLERS
from penstock.protocol.api_keys import ApiKey
from tests.access_matrix import recorded
from tests.access_matrix.arrangement import Arrangement
from tests.access_matrix.grants import Cell, all_cells, blocks
from tests.access_matrix.kafka_target import kafka_target
from tests.access_matrix.penstock_target import penstock_target
from tests.access_matrix.recorded import Recorded
from tests.access_matrix.requests import CASES, LOGIN_APIS
from tests.access_matrix.running import run_cells
from tests.access_matrix.targets import Target
from tests.oracle.kafka_jars import KAFKA_VERSION

IS_FULL = os.environ.get("PENSTOCK_MATRIX") == "full"
SAMPLED = 5
"""The sample has one cell of this number. It does not divide the number of columns, so that a
sample has each column with some pattern and host."""
DIFFERENCES_SHOWN_MAX = 40


@pytest.fixture(scope="module")
def recording() -> Recorded:
    return recorded.read()


def sample(first: int) -> list[Cell]:
    return [
        cell
        for at, cell in enumerate(all_cells())
        if cell.resource is None or at % SAMPLED == first
    ]


def assert_as_recorded(recording: Recorded, target: Target, cells: list[Cell]) -> None:
    arrangement = Arrangement(target)
    try:
        arrangement.build()
        outcomes = dict(run_cells(target, cells, arrangement))
    finally:
        arrangement.close()
    assert list(outcomes) == cells
    differences = list(recorded.differences(recording, outcomes))
    shown = "\n".join(differences[:DIFFERENCES_SHOWN_MAX])
    assert not differences, f"{len(differences)} differences:\n{shown}"


def test_matrix_is_complete(recording: Recorded) -> None:
    asked = {case.api for case in CASES}
    missing = {ApiKey(key).name for key in HANDLERS if key not in asked | LOGIN_APIS}
    assert not missing, "add requests for these APIs, then record the matrix again"
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert recording.kafka_version == KAFKA_VERSION, "record the matrix again"
    assert set(recording.cases) == set(names), "record the matrix again"
    assert recording.columns == recorded.column_names()
    assert recording.blocks == {block.name for block in blocks()}


def test_every_api_is_asked_in_its_highest_version() -> None:
    highest = {case.api: case.version for case in sorted(CASES, key=lambda case: case.version)}
    served = {ApiKey(key): handler.versions.highest for key, handler in HANDLERS.items()}
    assert highest == {key: served[key] for key in highest}


def test_outcomes_depend_on_permissions(recording: Recorded) -> None:
    alike = {case for case in recording.cases if len(recording.distinct(case)) == 1}
    assert alike == {
        "API_VERSIONS v4",
        "PRODUCE v13 transactional without an id",
        "SYNC_GROUP v5 without a protocol",
    }


def test_the_sample_has_every_column() -> None:
    columns = {(cell.resource, cell.operation) for cell in all_cells()}
    for first in range(SAMPLED):
        assert {(cell.resource, cell.operation) for cell in sample(first)} == columns


@pytest.mark.timeout(600)
def test_penstock_decides_as_kafka(recording: Recorded) -> None:
    cells = all_cells() if IS_FULL else sample(0)
    with penstock_target(cells) as target:
        assert_as_recorded(recording, target, cells)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_penstock_decides_as_kafka_in_every_cell(recording: Recorded) -> None:
    cells = all_cells()
    with penstock_target(cells) as target:
        assert_as_recorded(recording, target, cells)


@pytest.mark.interop
@pytest.mark.timeout(600)
def test_the_recording_is_of_kafka(recording: Recorded, tmp_path: Path) -> None:
    cells = sample(3)
    with kafka_target(tmp_path, cells) as target:
        assert_as_recorded(recording, target, cells)
