"""Reads the definition of a pipeline from a TOML file: the only reader of the file.

Guarantees: at most `FILE_BYTES_MAX` are read; every problem is a `DefinitionError` that names the
file. Relative paths in the file stay unchanged: they are relative to the working directory of the
pipeline, like every other path in Spark.
"""

import tomllib
from pathlib import Path
from typing import Final

from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.definition.reader import read_definition

FILE_BYTES_MAX: Final = 1_048_576
"""A definition has one or two pages."""
FILE_REMEDY: Final = "Give the path of a TOML file, or of a .py file with @pipeline."


def load_definition(path: Path) -> PipelineDefinition:
    """Return the definition in the file at this path."""
    where = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise DefinitionError(
            where, "", f"it cannot be read: {error.strerror}.", FILE_REMEDY
        ) from error
    if len(data) > FILE_BYTES_MAX:
        raise DefinitionError(
            where, "", f"it has more than {FILE_BYTES_MAX} bytes.", "Give a pipeline's definition."
        )
    try:
        document = tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise DefinitionError(
            where, "", f"it is not TOML: {error}.", "Correct it at that place."
        ) from error
    return read_definition(document, where)
