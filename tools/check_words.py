"""Plain English: a list of words that docs, docstrings and messages do not use.

Each rule has the words to find and the words to write instead. Checked are the pages of `docs/`,
the files at the root, and the docstrings and string literals of Python files. Names, code in
backticks and code blocks are not checked. It finds words, not riddles: a sentence without a finding
can still be a bad one.

    python tools/check_words.py            lists the findings, and ends with 1 if there are any
    python tools/check_words.py --counts   counts them by rule and by folder
"""

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PYTHON_FOLDERS: Final = ("src", "tools", "benchmarks", "examples", "pipelines", "compat")
PAGES: Final = (
    "*.md",
    *(f"{folder}/**/*.md" for folder in ("docs", "compat", "deploy", "changes", "benchmarks")),
    *(f"{folder}/**/*.md" for folder in ("examples", "pipelines")),
)
NOT_CHECKED: Final = (
    "CHANGELOG.md",
    "src/penstock/protocol/messages/",
    "tools/check_words.py",
)

RULES: Final = {
    r"whoever|somebody|someone|nobody|everybody|anybody": "name the client or the process",
    r"told|tells?\b(?! apart)": "report, return, log, name",
    r"brings?|brought": "write, add, create, load",
    r"made|makes sure": "created, computed, written; checks that",
    r"those that|those who|those which|those there are": "name the things",
    r"(?:^|[.:;] )what (?:is|are|was|were|has|have|comes|cannot|can|it)\b(?![^.]*\?)": (
        "name the thing and make it the subject"
    ),
    r"from (?!now |then )\S+ on\b(?! \w+ (?:disk|host|thread|loop))": "starting at ...",
    r"from \w+ [\d`]+ on": "starting at ...",
    r"all the same": "anyway",
    r"at hand": "installed, available",
    r"so many|so much|as many as (?:there )?(?:are|is)": "the number",
    r"is away|are away|goes away|went away": "unreachable, stopped",
    r"for good": "permanently",
    r"in silence": "without an error",
    r"want of room": "out of disk space",
}
_FLAGS: Final = re.IGNORECASE | re.MULTILINE
_RULES: Final = {
    re.compile(words if words.startswith("(?:^") else rf"\b(?:{words})\b", _FLAGS): instead
    for words, instead in RULES.items()
}


class Finding(NamedTuple):
    """One word in one line."""

    path: Path
    line: int
    word: str
    instead: str


def main() -> int:
    """List what was found; the exit code is 1 if there is a finding."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--counts", action="store_true", help="count by rule and by folder")
    parser.add_argument("paths", nargs="*", type=Path, help="only these files")
    arguments = parser.parse_args()
    findings = [finding for path in arguments.paths or _files() for finding in check(path)]
    if arguments.counts:
        for name, count in Counter(_folder(finding.path) for finding in findings).most_common():
            print(f"{count:5} {name}")
        for name, count in Counter(finding.word.lower() for finding in findings).most_common():
            print(f"{count:5} {name}")
    else:
        for finding in findings:
            path = finding.path.resolve().relative_to(ROOT)
            print(f"{path}:{finding.line}: {finding.word!r}; write: {finding.instead}")
    return 1 if findings else 0


def check(path: Path) -> Iterator[Finding]:
    """Yield the findings of one file."""
    text = path.read_text(encoding="utf-8")
    texts = _of_python(text) if path.suffix == ".py" else _of_page(text)
    for first_line, part in texts:
        plain = re.sub(r"`[^`]*`", lambda found: "`" * len(found[0]), part)
        for rule, instead in _RULES.items():
            for found in rule.finditer(plain):
                line = first_line + plain.count("\n", 0, found.start())
                yield Finding(path, line, found[0].strip(" .:;\n"), instead)


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings and the string literals of a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def _of_page(text: str) -> Iterator[tuple[int, str]]:
    """Yield the page, with its code blocks and the targets of its links blanked."""

    def blank(found: "re.Match[str]") -> str:
        return re.sub(r"[^\n]", " ", found[0])

    text = re.sub(r"^( *)```.*?^\1```", blank, text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", blank, text)
    yield 1, text


def _files() -> Iterator[Path]:
    found = [path for folder in PYTHON_FOLDERS for path in (ROOT / folder).rglob("*.py")]
    found += [path for pattern in PAGES for path in ROOT.glob(pattern)]
    for path in sorted(set(found)):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(NOT_CHECKED):
            yield path


def _folder(path: Path) -> str:
    return "/".join(path.resolve().relative_to(ROOT).parts[:3])


if __name__ == "__main__":
    sys.exit(main())
