"""The list of words: where it looks, and what it leaves alone."""

from pathlib import Path

import pytest

from tools.check_words import ROOT, _files, check


def words(path: Path, text: str) -> list[tuple[int, str]]:
    path.write_text(text)
    return [(finding.line, finding.word) for finding in check(path)]


def test_docstrings_and_messages_are_checked(tmp_path: Path) -> None:
    text = '"""Whoever calls this."""\n\nraise ValueError("somebody told the broker")\n'
    found = words(tmp_path / "module.py", text)
    assert sorted(found) == [(1, "Whoever"), (3, "somebody"), (3, "told")]


def test_names_are_not_checked(tmp_path: Path) -> None:
    assert words(tmp_path / "module.py", 'told = made = "x"\n"""The value of `told`."""\n') == []


@pytest.mark.parametrize("text", ["```text\nnobody was told\n```\n", "Run `made it`.\n"])
def test_code_in_pages_is_not_checked(tmp_path: Path, text: str) -> None:
    assert words(tmp_path / "page.md", text) == []


def test_pages_are_checked(tmp_path: Path) -> None:
    assert words(tmp_path / "page.md", "# Title\n\nWhat is used is shown.\n") == [(3, "What is")]
    assert words(tmp_path / "page.md", "What is Penstock? A broker.\n") == []


def test_the_files_are_those_of_the_project() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in _files()}
    assert {"README.md", "docs/behaviour.md", "src/penstock/broker/dispatch.py"} <= names
    assert "src/penstock/protocol/messages/fetch.py" not in names
