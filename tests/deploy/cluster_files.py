"""The shipped files of a cluster, as values: settings of each broker, and objects of Kubernetes."""

import tomllib
from pathlib import Path
from typing import Any, Final

import yaml

from penstock.core.settings.config import load_settings
from penstock.core.settings.tree import Settings

DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"
NUMBERS: Final = (1, 2, 3)


def systemd_file(number: int) -> Path:
    """The settings file of one broker."""
    return DEPLOY / "systemd" / f"broker-{number}.toml"


def systemd_settings(number: int) -> Settings:
    text = systemd_file(number).read_text()
    assert tomllib.loads(text)["node"]["id"] == number
    return load_settings(text, {}, {}).settings


def compose_services() -> dict[str, Any]:
    document = yaml.safe_load((DEPLOY / "container" / "compose-cluster.yml").read_text())
    services: dict[str, Any] = document["services"]
    return services


def compose_settings(number: int) -> Settings:
    """The settings in a container: the image's file, and the variables of the service."""
    text = (DEPLOY / "container" / "penstock.toml").read_text()
    return load_settings(text, compose_services()[f"broker{number}"]["environment"], {}).settings


def kubernetes(kind: str, name: str) -> dict[str, Any]:
    """One object of the cluster's manifests."""
    text = (DEPLOY / "kubernetes" / "penstock-cluster.yaml").read_text()
    (found,) = [
        one
        for one in yaml.safe_load_all(text)
        if one["kind"] == kind and one["metadata"]["name"] == name
    ]
    result: dict[str, Any] = found
    return result


def kubernetes_settings(number: int) -> Settings:
    """The settings in a pod: the config map, and the variables as Kubernetes fills them."""
    ordinal = number - 1
    fields = {
        "metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal),
        "metadata.name": f"penstock-{ordinal}",
    }
    (container,) = kubernetes("StatefulSet", "penstock")["spec"]["template"]["spec"]["containers"]
    variables: dict[str, str] = {}
    for one in container["env"]:
        value = one.get("value") or fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
        for name, known in variables.items():
            value = value.replace(f"$({name})", known)
        variables[one["name"]] = value
    del variables["POD_NAME"]
    text = kubernetes("ConfigMap", "penstock")["data"]["penstock.toml"]
    return load_settings(text, variables, {}).settings
