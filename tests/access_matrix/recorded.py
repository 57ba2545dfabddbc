"""The recorded outcomes of Apache Kafka: reading, writing and comparing `matrix.json`.

The file has each distinct outcome of a case once. A letter for each cell names the outcome; a dot
is a column without a cell. Its head has the versions and columns it was recorded with, so that a
change of the cells cannot be compared with an old recording. Only `record` writes it.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import ascii_letters, digits
from typing import Any, Final

from tests.access_matrix.grants import COLUMNS, Block, Cell, blocks, cells_of

FILE: Final = Path(__file__).with_name("matrix.json")
LETTERS: Final = ascii_letters + digits
NO_CELL: Final = "."

Outcomes = Mapping[Cell, Mapping[str, str]]
"""By cell, then by the name of the case."""


def column_names() -> list[str]:
    """Return the columns as texts."""
    return [f"{resource.name} {operation.name}" for resource, operation in COLUMNS]


def text_of(outcomes: Outcomes, kafka_version: str) -> str:
    """Return the content of the file."""
    names = list(next(iter(outcomes.values())))
    content = {
        "written by": "python -m tests.access_matrix.record",
        "apache kafka": kafka_version,
        "columns": column_names(),
        "cases": {name: _case(name, outcomes) for name in names},
    }
    return json.dumps(content, indent=1) + "\n"


def _case(name: str, outcomes: Outcomes) -> dict[str, Any]:
    letter_of: dict[str, str] = {}
    rows: dict[str, str] = {}
    for block in blocks():
        row = ""
        for cell in cells_of(block):
            if cell is None:
                row += NO_CELL
            else:
                text = outcomes[cell][name]
                row += letter_of.setdefault(text, LETTERS[len(letter_of)])
        rows[block.name] = row
    return {"outcomes": {letter: text for text, letter in letter_of.items()}, "cells": rows}


class Recorded:
    """The recorded outcomes."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.kafka_version: str = content["apache kafka"]
        self.columns: list[str] = content["columns"]
        self._cases: Mapping[str, Any] = content["cases"]

    @property
    def cases(self) -> list[str]:
        """The names of the cases."""
        return list(self._cases)

    @property
    def blocks(self) -> set[str]:
        """The names of the blocks that every case has."""
        return set.intersection(*(set(case["cells"]) for case in self._cases.values()))

    def outcome(self, case: str, cell: Cell) -> str:
        """Return the outcome of a case in a cell."""
        recorded = self._cases[case]
        letter = recorded["cells"][cell.block.name][_column(cell.block, cell)]
        text: str = recorded["outcomes"][letter]
        return text

    def distinct(self, case: str) -> list[str]:
        """Return the distinct outcomes of a case."""
        return list(self._cases[case]["outcomes"].values())


def _column(block: Block, cell: Cell) -> int:
    return cells_of(block).index(cell)


def differences(recording: Recorded, outcomes: Outcomes) -> Iterator[str]:
    """Yield a text for each outcome that is not the recorded one."""
    for cell, found in outcomes.items():
        for case, text in found.items():
            expected = recording.outcome(case, cell)
            if text != expected:
                yield f"{case} | {cell.user}\n    Kafka: {expected}\n    found: {text}"


def read() -> Recorded:
    """Return the recorded outcomes."""
    return Recorded(json.loads(FILE.read_text(encoding="utf-8")))
