"""The source is tested: sizes, docstrings and words, read from the tree.

A rule that a machine can check is checked here, so that reviews are about design.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "penstock"
FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 70
GENERATED = SOURCE / "protocol" / "messages"
FILES_IN_FOLDER_MAX = 25
ONE_FILE_FOR_EACH_API = SOURCE / "broker" / "handlers"
SHARED_NAMES = {
    "answers",
    "batches",
    "brokers",
    "buffers",
    "change",
    "codec",
    "columns",
    "command",
    "committer",
    "connection",
    "coordinators",
    "database",
    "decisions",
    "declared_topics",
    "errors",
    "framing",
    "group_lag",
    "groups",
    "identity",
    "judging",
    "kernel",
    "keys",
    "limits",
    "listener",
    "maintenance",
    "membership",
    "memory_disk",
    "model",
    "network",
    "opening",
    "options",
    "port",
    "ports",
    "program",
    "protocol",
    "reading",
    "records",
    "registry",
    "rejects",
    "rows",
    "scan",
    "schema",
    "server",
    "service",
    "session",
    "settings",
    "shard",
    "status",
    "steps",
    "storage",
    "table",
    "text",
    "topics",
    "transactions",
    "upsert",
    "values",
    "version",
    "view",
}
"""Names that several folders have, because their folder says of what. A new one needs a reason:
the reader of a traceback or of a search sees the name first."""
BANNED_NAMES = {"utils", "common", "helpers", "misc", "util", "helper"}


def source_files() -> list[Path]:
    return sorted(p for p in SOURCE.rglob("*.py") if GENERATED not in p.parents)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = node.body
    first = body[0]
    doc_lines = 0
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        doc_lines = (first.end_lineno or first.lineno) - first.lineno + 1
    return (node.end_lineno or node.lineno) - node.lineno + 1 - doc_lines


@pytest.mark.parametrize("path", source_files(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_file_is_tidy(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    problems = []
    if not ast.get_docstring(tree):
        problems.append("no docstring at the top that says what the file guarantees")
    lines = text.count("\n")
    if lines > FILE_LINES_MAX:
        problems.append(f"{lines} lines, at most {FILE_LINES_MAX}")
    problems += [
        f"{node.name} has {code_lines(node)} lines, at most {FUNCTION_LINES_MAX}"
        for node in functions(tree)
        if code_lines(node) > FUNCTION_LINES_MAX
    ]
    if path.stem in BANNED_NAMES or path.parent.name in BANNED_NAMES:
        problems.append(f"'{path.stem}' is not a noun")
    if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", text):
        problems.append("unfinished work is an issue, not a comment")
    assert not problems, f"{path.relative_to(ROOT)}: " + "; ".join(problems)


def test_every_package_says_what_it_is() -> None:
    missing = [
        str(folder.relative_to(ROOT))
        for folder in {p.parent for p in SOURCE.rglob("*.py")}
        if not (folder / "__init__.py").exists()
    ]
    assert not missing


def test_a_folder_fits_on_a_screen() -> None:
    folders = {path.parent for path in source_files()} - {ONE_FILE_FOR_EACH_API}
    counts = {folder: len(list(folder.glob("*.py"))) for folder in folders}
    assert not {
        str(folder.relative_to(ROOT)): count
        for folder, count in counts.items()
        if count > FILES_IN_FOLDER_MAX
    }


def test_a_module_name_means_one_thing() -> None:
    folders: dict[str, list[Path]] = {}
    for path in source_files():
        if path.stem != "__init__" and path.parent != ONE_FILE_FOR_EACH_API:
            folders.setdefault(path.stem, []).append(path.parent)
    shared = {name for name, places in folders.items() if len(places) > 1}
    assert shared == SHARED_NAMES


def committed_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    own = Path(__file__).resolve()
    return [ROOT / name for name in listed if (ROOT / name).is_file() and ROOT / name != own]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"/(?:root|home/[a-z]+|work)/", "an absolute path of one machine"),
        (r"\.\./shared|\bshared/oracle|\"shared\" */", "a folder beside the checkout"),
    ],
    ids=["absolute path", "folder beside the checkout"],
)
def test_a_clone_alone_is_enough(pattern: str, why: str) -> None:
    """Guards that all sources of tests and suites are in the repository."""
    found = re.compile(pattern)
    offenders = [
        str(path.relative_to(ROOT))
        for path in committed_files()
        if found.search(path.read_text(errors="ignore"))
    ]
    assert not offenders, why


JAVA_LINE_COLUMNS_MAX = 120


@pytest.mark.parametrize(
    "path", sorted((ROOT / "compat").rglob("*.java")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_java_of_the_suites_is_tidy(path: Path) -> None:
    lines = path.read_text().splitlines()
    long = [number for number, line in enumerate(lines, 1) if len(line) > JAVA_LINE_COLUMNS_MAX]
    assert not long, f"lines over {JAVA_LINE_COLUMNS_MAX} columns"
    assert len(lines) <= FILE_LINES_MAX
    assert any(line == "/**" for line in lines), "no comment that says what the file guarantees"
