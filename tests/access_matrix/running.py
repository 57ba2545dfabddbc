"""`run_cells`: the outcome of every case in some cells, on one target."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tests.access_matrix.arrangement import Arrangement
from tests.access_matrix.grants import Cell
from tests.access_matrix.names import DOOMED_BY_NAME, DOOMED_TOPIC, Case
from tests.access_matrix.outcomes import CLOSED, OPEN, outcome
from tests.access_matrix.requests import CASES
from tests.access_matrix.targets import Connection, Target

DOOMED: Final = {name: f"{name} id({name}) NONE" for name in (DOOMED_TOPIC, DOOMED_BY_NAME)}
"""The text in the outcome of a cell that was allowed to delete the topic."""


def run_cells(
    target: Target, cells: Iterable[Cell], arrangement: Arrangement, cases: Sequence[Case] = CASES
) -> Iterator[tuple[Cell, dict[str, str]]]:
    """Yield each cell with its outcomes by the name of the case."""
    for cell in cells:
        arrangement.keep_alive()
        outcomes = _run_cell(target, cell, arrangement, cases)
        for name, deleted in DOOMED.items():
            if any(deleted in text for text in outcomes.values()):
                arrangement.recreate(name)
        yield cell, outcomes


def _run_cell(
    target: Target, cell: Cell, arrangement: Arrangement, cases: Sequence[Case]
) -> dict[str, str]:
    connection = target.connect(cell.user)
    try:
        outcomes: dict[str, str] = {}
        left = [case for case in cases if not case.is_silent]
        while left:
            connection = _ask_some(target, cell, connection, left, arrangement, outcomes)
        for case in cases:
            if case.is_silent:
                message = case.build(arrangement.world)
                stays_open = connection.is_open_after(message, case.version)
                outcomes[case.name] = OPEN if stays_open else CLOSED
    finally:
        connection.close()
    return outcomes


def _ask_some(
    target: Target,
    cell: Cell,
    connection: Connection,
    left: list[Case],
    arrangement: Arrangement,
    outcomes: dict[str, str],
) -> Connection:
    """Ask all cases that are left; the broker may close the connection at one of them."""
    world = arrangement.world
    answers = connection.ask([(case.build(world), case.version) for case in left])
    for case, answer in zip(left, answers, strict=False):
        outcomes[case.name] = outcome(answer, world)
    del left[: len(answers)]
    if left:
        outcomes[left.pop(0).name] = CLOSED
        connection.close()
        return target.connect(cell.user)
    return connection
