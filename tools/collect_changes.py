"""Moves the fragments of `changes/` into a new section of `CHANGELOG.md`, for a release.

    python tools/collect_changes.py 0.2.0 2026-11-17

A fragment is a file `ISSUE[.NAME].KIND.md`; its kind is the heading it comes under, and the file is
deleted. Nothing is written when a name has another form.
"""

import argparse
import re
import sys
import textwrap
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
KINDS: Final = {
    "removal": "Removed",
    "feature": "Added",
    "fix": "Fixed",
    "docs": "Documentation",
}
UNRELEASED: Final = "## Unreleased\n\nSee `changes/`.\n"
_NAME: Final = re.compile(r"(?P<issue>\d+)\.(?:[\w-]+\.)?(?P<kind>\w+)\.md")


def main() -> int:
    """Write the section and delete the fragments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version")
    parser.add_argument("date", help="of the release, YYYY-MM-DD")
    arguments = parser.parse_args()
    fragments = sorted((ROOT / "changes").glob("*.md"))
    changelog = ROOT / "CHANGELOG.md"
    text = changelog.read_text()
    assert UNRELEASED in text, "CHANGELOG.md has no section for unreleased changes"
    added = section(arguments.version, arguments.date, {p.name: p.read_text() for p in fragments})
    changelog.write_text(text.replace(UNRELEASED, f"{UNRELEASED}\n{added}"))
    for path in fragments:
        path.unlink()
    print(f"{len(fragments)} changes moved into the section {arguments.version}")
    return 0


def section(version: str, date: str, fragments: dict[str, str]) -> str:
    """The section of a release; `fragments` has the texts by file name."""
    by_kind: dict[str, list[tuple[int, str, str]]] = {kind: [] for kind in KINDS}
    for name, text in fragments.items():
        form = _NAME.fullmatch(name)
        if form is None or form["kind"] not in KINDS:
            raise SystemExit(f"error: changes/{name} is not ISSUE[.NAME].KIND.md")
        by_kind[form["kind"]].append((int(form["issue"]), name, text))
    lines = [f"## {version} ({date})", ""]
    for kind, heading in KINDS.items():
        if by_kind[kind]:
            lines += [f"### {heading}", ""]
            lines += (_item(text) for _, _, text in sorted(by_kind[kind]))
            lines += [""]
    return "\n".join(lines)


def _item(text: str) -> str:
    return "- " + textwrap.indent(text.strip(), "  ").lstrip()


if __name__ == "__main__":
    sys.exit(main())
