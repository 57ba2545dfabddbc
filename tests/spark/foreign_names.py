"""The private names of other packages that `penstock.spark` uses: in the source, and as documented.

Guarantees: a name is found as an import, as an attribute of an object other than `self`, as a text
for `getattr`, and, in a subclass of another package's class, as an attribute of that class that is
used or replaced. The documented names are those of the table in `docs/dependencies.md`.

It does NOT find names that are put together at run time, nor private classes of Java.
"""

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "src" / "penstock" / "spark"
PAGE: Final = ROOT / "docs" / "dependencies.md"
HEADING: Final = "## Private names of other packages"
NONE_FOUND: Final = "none found"
OF_NAMED_TUPLES: Final = frozenset({"_replace", "_fields", "_asdict", "_make"})
"""Documented by Python; the underscore avoids names of fields."""
OWN: Final = frozenset(
    {("tables/definition/values.py", "_values"), ("tables/definition/values.py", "_text")}
)
"""Private names of Penstock's own objects, used in the module that defines them."""
_READERS: Final = frozenset({"getattr", "setattr", "hasattr", "delattr"})
_MAY_USE: Final = re.compile(
    r"(?<!self)(?<!cls)\._[A-Za-z]|\b_[A-Za-z]\w*,?\s*$|import .*\b_|attr\(", re.MULTILINE
)
"""A text without a match has no private name of another object: it is not parsed."""
_HAS_BASES: Final = re.compile(
    r"^class \w+\((?!(Exception|Protocol|NamedTuple|Enum|StrEnum|IntEnum)\b)", re.MULTILINE
)
"""A text without a match has no subclass of another package's class."""
_OURS: Final = frozenset({"penstock", "tests"})


class Use(NamedTuple):
    """A private name in a file of the package."""

    path: str
    name: str


class Row(NamedTuple):
    """One row of the documented table."""

    name: str
    """With its class or module, such as `Table._do_commit`."""
    paths: tuple[str, ...]
    purpose: str
    issue: str

    @property
    def last(self) -> str:
        """The name without its class or module."""
        return self.name.rpartition(".")[2]


def is_private(name: str) -> bool:
    """Return whether a name is private, and not a special method."""
    return name.startswith("_") and name != "_" and not name.startswith("__")


def used_names() -> set[Use]:
    """Return every use in the package."""
    found = set()
    for file in sorted(PACKAGE.rglob("*.py")):
        path, text = str(file.relative_to(PACKAGE)), file.read_text()
        names = set[str]()
        if _MAY_USE.search(text):
            names |= set(names_in(ast.parse(text)))
        if _HAS_BASES.search(text):
            module = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)
            names |= set(inherited_names(ast.parse(text), importlib.import_module(module)))
        found |= {Use(path, name) for name in names} - {Use(*one) for one in OWN}
    return found


def names_in(tree: ast.AST) -> Iterator[str]:
    """Return private names that are imported, or attributes of another object."""
    for node in ast.walk(tree):
        yield from filter(is_private, _names_of(node))


def _names_of(node: ast.AST) -> Iterator[str]:
    """Return the names of other objects and packages at this place."""
    match node:
        case ast.Import(names):
            yield from (part for one in names for part in one.name.split("."))
        case ast.ImportFrom(module, names):
            places = (module or "").split(".")
            if places[0] not in _OURS:
                yield from (*places, *(one.name for one in names))
        case ast.Attribute(value, name):
            if not _is_self(value) and name not in OF_NAMED_TUPLES:
                yield name
        case ast.Call(ast.Name(name), [_, ast.Constant(str(text)), *_]) if name in _READERS:
            yield text


def inherited_names(tree: ast.AST, module: ModuleType) -> Iterator[str]:
    """Return private names of other packages' classes in their subclasses here."""
    for node in ast.walk(tree):
        found = getattr(module, node.name, None) if isinstance(node, ast.ClassDef) else None
        if not isinstance(node, ast.ClassDef) or not isinstance(found, type):
            continue
        own = [one for one in found.__mro__ if _package(one) in _OURS]
        others = [one for one in found.__mro__ if one not in own and not _is_of_python(one)]
        if not others:
            continue
        ours = set().union(*(_set_in(_source_class(one)) for one in own))
        for part in ast.walk(node):
            match part:
                case ast.FunctionDef(name) if any(hasattr(one, name) for one in others):
                    yield from filter(is_private, [name])
                case ast.Attribute(value, name) if _is_self(value) and name not in ours:
                    yield from filter(is_private, [name])


def _is_self(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _is_of_python(kind: type) -> bool:
    return _package(kind) in sys.stdlib_module_names


@cache
def _source_class(kind: type) -> ast.ClassDef:
    file = sys.modules[kind.__module__].__file__
    assert file is not None, f"{kind} has a source"
    tree = ast.parse(Path(file).with_suffix(".py").read_text())
    [found] = [
        one for one in ast.walk(tree) if isinstance(one, ast.ClassDef) and one.name == kind.__name__
    ]
    return found


def _set_in(node: ast.ClassDef) -> set[str]:
    """Return the attributes and methods that a class itself sets or defines."""
    found = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store):
            if _is_self(one.value):
                found.add(one.attr)
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            found.add(one.target.id)
    return found


def documented_rows() -> list[Row]:
    """Return the rows of the table in `docs/dependencies.md`."""
    section = PAGE.read_text().partition(HEADING)[2].partition("\n## ")[0]
    assert section, f"{PAGE.name} has no section '{HEADING}'"
    rows = []
    for line in section.splitlines():
        cells = [one.strip() for one in line.strip().strip("|").split("|")]
        if line.startswith("| `") and len(cells) == len(Row._fields):
            name, paths, purpose, issue = cells
            rows.append(
                Row(name.strip("`"), tuple(re.findall(r"`([^`]+)`", paths)), purpose, issue)
            )
    return rows
