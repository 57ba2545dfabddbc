"""Files that name the version agree, so that a release cannot forget one."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

from penstock.client.transport.versions import CLIENT_VERSION

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


def test_the_client_reports_the_version_of_the_package() -> None:
    # A constant: reading the package's metadata would cost each command 20 ms.
    assert project()["version"] == CLIENT_VERSION


def test_the_guide_tags_the_image_with_the_version() -> None:
    guide = (ROOT / "docs/guides/deploying.md").read_text()
    assert set(re.findall(r"penstock:(\d+\.[\d.]+)", guide)) == {project()["version"]}
