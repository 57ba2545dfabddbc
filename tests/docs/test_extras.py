"""The extras install the requirements of pipelines, in the versions that are developed on."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
DEPENDENCIES = (ROOT / "docs" / "dependencies.md").read_text()


def test_the_extras_are_what_is_tested() -> None:
    brought = {one for name in ("iceberg", "delta", "protobuf") for one in EXTRAS[name]}
    assert brought == set(PROJECT["dependency-groups"]["tables"])


def test_every_package_of_an_extra_is_argued_for() -> None:
    for one in {one for packages in EXTRAS.values() for one in packages}:
        match = re.match(r"[A-Za-z0-9-]+", one)
        assert match is not None
        assert f"| **{match.group()}**" in DEPENDENCIES
