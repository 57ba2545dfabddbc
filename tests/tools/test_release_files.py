"""Files that name the version agree, so that a release cannot forget one."""

import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]


def project() -> dict[str, Any]:
    content: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return content


def test_the_citation_has_the_version_and_licence_of_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == project()["version"]
    assert citation["license"] == project()["license"]
    assert citation["cff-version"] == "1.2.0"


def test_the_latest_minor_release_is_the_supported_one() -> None:
    minor = project()["version"].rpartition(".")[0]
    assert f"| latest minor release ({minor}) | yes |" in (ROOT / "SECURITY.md").read_text()
