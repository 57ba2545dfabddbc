"""The files of `deploy`, each judged by the tool of its kind; and they agree with the code.

systemd's own checker reads the unit, Kubernetes' schemas the manifests, Compose's own loader the
compose file. Every setting that a file gives exists. `tools/container_steps.py` does the steps of
the image in a bare system.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from penstock.core.settings.config import describe_settings, load_settings
from tests.oracle.cache import built, content_key, progress, run, tool

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHECK = Path(__file__).parent / "compose_check"
KUBERNETES_VERSION = "1.34"
ENVIRONMENT_NAME = re.compile(r"PENSTOCK_[A-Z]+__[A-Z_]+")


def manifests(file: str = "penstock.yaml") -> list[dict[str, object]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / file).read_text()))


@pytest.mark.parametrize("file", ["penstock.yaml", "penstock-cluster.yaml"])
def test_kubernetes_takes_the_manifests(file: str) -> None:
    for manifest in manifests(file):
        kubernetes_validate.validate(manifest, KUBERNETES_VERSION, strict=True)


def test_the_schemas_refuse_what_is_wrong() -> None:
    (wrong,) = [one for one in manifests() if one["kind"] == "StatefulSet"]
    wrong["spec"]["replica"] = 1  # type: ignore[index]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES_VERSION, strict=True)


def test_the_settings_of_the_config_map_count_in_the_image() -> None:
    (settings,) = [one for one in manifests() if one["kind"] == "ConfigMap"]
    text = settings["data"]["penstock.toml"]  # type: ignore[index]
    loaded = load_settings(text, image_environment(), {})
    assert loaded.settings.listener.advertised_host == "penstock"


def test_a_variable_wins_over_the_file_of_the_image() -> None:
    text = (DEPLOY / "container" / "penstock.toml").read_text()
    name = "PENSTOCK_LISTENER__ADVERTISED_HOST"
    assert load_settings(text, image_environment(), {}).settings.admin.host == "0.0.0.0"
    loaded = load_settings(text, {**image_environment(), name: "broker.example"}, {})
    assert loaded.settings.listener.advertised_host == "broker.example"


def image_environment() -> dict[str, str]:
    """The variables that the image sets, all stages."""
    text = (DEPLOY / "container" / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line.removeprefix("ENV ") for line in text.splitlines() if line.startswith("ENV ")]
    return dict(word.split("=", 1) for line in lines for word in line.split())


@pytest.mark.parametrize("file", sorted(DEPLOY.rglob("*")), ids=lambda file: file.name)
def test_every_variable_is_a_setting(file: Path) -> None:
    known = {info.environment_name for info in describe_settings()}
    if file.is_file():
        assert set(ENVIRONMENT_NAME.findall(file.read_text())) <= known


@pytest.mark.parametrize("name", ["penstock.service", "penstock@.service"])
def test_systemd_takes_the_unit(tmp_path: Path, name: str) -> None:
    text = (DEPLOY / "systemd" / name).read_text()
    found = re.search(r"ExecStart=(\S+)", text)
    assert found is not None
    # The checker wants the program to be there, and here it is somewhere else.
    there = text.replace(found[1], shutil.which("true") or "/bin/true")
    unit = tmp_path / name
    unit.write_text(there)
    assert verified(unit) == ""
    unit.write_text(there.replace("Restart=on-failure", "Restart=sometimes"))
    assert "sometimes" in verified(unit)


def verified(unit: Path) -> str:
    """What systemd finds wrong with the unit."""
    done = subprocess.run(
        [tool("systemd-analyze", "install systemd"), "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )
    return "\n".join(line for line in done.stderr.splitlines() if unit.name in line)


@pytest.mark.interop
@pytest.mark.parametrize("file", ["compose.yml", "compose-cluster.yml"])
def test_compose_takes_its_file(file: str) -> None:
    project = json.loads(run([_compose_check(), DEPLOY / "container" / file]))
    for name, service in project["services"].items():
        ports = service.get("ports", [])
        assert {port["host_ip"] for port in ports} <= {"127.0.0.1"}
        assert bool(ports) != name.startswith("etcd")
        for volume in service.get("volumes", []):
            if volume["type"] == "bind":
                assert Path(volume["source"]).exists(), volume["source"]


def _compose_check() -> Path:
    go = tool("go", "install Go (Debian: golang-go); it fetches the newer toolchain it needs")
    files = [CHECK / "go.mod", CHECK / "go.sum", CHECK / "main.go"]

    def build(folder: Path) -> None:
        progress("building Compose's loader")
        run([go, "build", "-o", folder / "compose_check", "."], folder=CHECK)

    return built(f"compose-check-{content_key(*files)}", build) / "compose_check"
