"""Fragments become a section of the changelog: by kind, in the order of their issues."""

import pytest

from tools.collect_changes import section


def test_a_section_has_a_heading_for_each_kind() -> None:
    fragments = {
        "16.b.fix.md": "A fix.\nMore of it.\n",
        "4.fix.md": "An older fix.\n",
        "17.x-y.feature.md": "A feature.\n",
    }
    assert section("0.2.0", "2026-11-17", fragments) == (
        "## 0.2.0 (2026-11-17)\n\n### Added\n\n- A feature.\n\n"
        "### Fixed\n\n- An older fix.\n- A fix.\n  More of it.\n"
    )


def test_another_name_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"changes/notes.txt.md"):
        section("0.2.0", "2026-11-17", {"notes.txt.md": "?"})
