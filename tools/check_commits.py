"""The form of commit messages: `area: imperative verb ...`, at most 72 columns, and a reason.

A subject has an area in small letters, a colon and a verb in the imperative, and no full stop. A
commit that changes `src` has a body that says why. Checked are the commits after the one that added
this file, so that older messages stay as they are; merges are not checked. Without a Git repository
(a source distribution) or without that commit (a shallow clone) there is nothing to check.

    python tools/check_commits.py
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
OWN_PATH: Final = "tools/check_commits.py"
COLUMNS_MAX: Final = 72
_SUBJECT: Final = re.compile(r"[a-z][a-z0-9 ,._/-]*: (?P<verb>[a-z]+)\b.*[^.]")
_NOT_IMPERATIVE: Final = re.compile(
    r"(?!(?:access|address|alias|assess|bypass|compress|cross|decompress|discuss|dismiss|express|"
    r"focus|guess|miss|pass|press|process|stress|suppress|embed|exceed|feed|need|proceed|seed|shed|"
    r"speed|succeed|bring|ping|ring|string|swing)$)\w+(?:s|ed|ing)|"
    r"(?:kept|made|sent|got|took|wrote|a|an|the|no|one|what|when|where|how|there|it|its|is|are)"
)


class Commit(NamedTuple):
    """The parts of a commit that have a form."""

    name: str
    subject: str
    body: str
    changes_source: bool


def main() -> int:
    """List what is wrong; the exit code is 1 if something is."""
    problems = [problem for commit in commits() for problem in check(commit)]
    for problem in problems:
        print(problem)
    if problems:
        print("hint: `git commit --amend` changes the last message, `git rebase -i` older ones")
    return 1 if problems else 0


def check(commit: Commit) -> Iterator[str]:
    """Yield the problems of one commit."""
    subject = commit.subject
    if subject.startswith('Revert "'):
        return
    if len(subject) > COLUMNS_MAX:
        yield f"{commit.name}: the subject has {len(subject)} columns, at most {COLUMNS_MAX}"
    form = _SUBJECT.fullmatch(subject)
    if form is None:
        yield f"{commit.name}: {subject!r} is not 'area: imperative verb ...' without a full stop"
    elif _NOT_IMPERATIVE.fullmatch(form["verb"]):
        yield f"{commit.name}: {form['verb']!r} in {subject!r} is not a verb in the imperative"
    if commit.changes_source and not commit.body.strip():
        yield f"{commit.name}: {subject!r} changes src, and no body says why"


def commits() -> Iterator[Commit]:
    """Yield the commits after the one that added this file."""
    added = _git("log", "--diff-filter=A", "--format=%H", "--", OWN_PATH).split()
    if not added:
        return
    for name in _git("log", "--no-merges", "--format=%H", f"{added[-1]}..HEAD").split():
        subject, _, body = _git("show", "--no-patch", "--format=%s%n%b", name).partition("\n")
        paths = _git("show", "--name-only", "--format=", name).splitlines()
        is_source = any(path.startswith("src/") for path in paths)
        yield Commit(name[:10], subject, body, is_source)


def _git(*arguments: str) -> str:
    if shutil.which("git") is None:
        return ""
    done = subprocess.run(
        ("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(main())
