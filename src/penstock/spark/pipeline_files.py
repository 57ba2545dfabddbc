"""Loads the pipeline that a command names: a TOML file, a Python file, or one pipeline of it.

    orders.toml        the definition
    orders.py          the one pipeline that this file makes with `@pipeline`
    orders.py:orders   the one of this name, when there are several
    shop.toml:orders   the pipeline of this topic, when each topic has a table of its own

Guarantees: a Python file is run once, as a separate module that is removed afterwards. So its
functions are sent to Spark's workers by value; workers do not have the file. Every problem is a
`DefinitionError` that names the file, and for an error raised by a Python file the line too.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Final

from penstock.core.errors import PenstockError
from penstock.spark.pipelines import Pipeline, Transform
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.file import FILE_REMEDY, load_definition
from penstock.spark.tables.definition.many_tables import has_many_tables, table_of_topic
from penstock.spark.tables.definition.model import PipelineDefinition

_MODULE: Final = "penstock_pipeline"


@dataclass(frozen=True, slots=True)
class LoadedPipeline:
    """A definition and, from Python, the function that transforms the rows."""

    definition: PipelineDefinition
    transform: Transform | None = None


def load_pipeline(named: str) -> LoadedPipeline:
    """Return the one pipeline that this text names."""
    loaded = load_pipelines(named)
    if has_many_tables(loaded.definition):
        raise DefinitionError(
            named,
            "table.name",
            "each topic has a table of its own, and the command is for one table.",
            f"Name the topic: {named}:TOPIC.",
        )
    return loaded


def load_pipelines(named: str) -> LoadedPipeline:
    """Return the pipeline that this text names, which may have a table for each topic."""
    path, name = _split(named)
    if path.suffix != ".py":
        definition = load_definition(path)
        if name is None:
            return LoadedPipeline(definition)
        if not has_many_tables(definition):
            raise DefinitionError(
                str(path), "table.name", "it has one table.", f"Name the file alone: {path}."
            )
        return LoadedPipeline(table_of_topic(definition, name))
    if not path.is_file():
        raise DefinitionError(str(path), "", "there is no such file.", FILE_REMEDY)
    chosen = _chosen(_run(path), path, name)
    return LoadedPipeline(chosen.definition, chosen.transform)


def _split(named: str) -> tuple[Path, str | None]:
    for suffix in (".py", ".toml"):
        before, found, after = named.rpartition(f"{suffix}:")
        if found and after and not Path(named).exists():
            return Path(before + suffix), after
    return Path(named), None


def _run(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    assert spec is not None, "the path ends in .py"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module  # dataclasses look up their module while they are created
    try:
        spec.loader.exec_module(module)
    except PenstockError:
        raise
    except Exception as error:
        raise DefinitionError(
            _place(path, error), "", f"{_named(error)}.", "Correct the file."
        ) from error
    finally:
        del sys.modules[_MODULE]
    return module


def _place(path: Path, error: Exception) -> str:
    """Return the file and the line in it that raised the error or called the raising code."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}, line {error.lineno}"
    lines = [
        frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    return f"{path}, line {lines[-1]}" if lines else str(path)


def _named(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg}"
    text = str(error).strip().rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _chosen(module: ModuleType, path: Path, name: str | None) -> Pipeline:
    found = {key: value for key, value in vars(module).items() if isinstance(value, Pipeline)}
    if not found:
        raise DefinitionError(
            str(path),
            "",
            "it makes no pipeline.",
            "Decorate a function with @pipeline of penstock.spark.pipelines.",
        )
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name is None or name not in found:
        problem = "it makes several pipelines." if name is None else f"it has no pipeline '{name}'."
        choices = " or ".join(f"{path}:{one}" for one in found)
        raise DefinitionError(str(path), "", problem, f"Name one: {choices}.")
    return found[name]
