"""Penstock as one process, started the way a user starts it: `penstock serve`.

Guarantees: the same `RunningBroker` as for Apache Kafka. The source tree this file lies in is the
one that runs, uncompiled, unless `PENSTOCK_BROKER_PYTHON` names the interpreter of an environment
that Penstock is installed in: the Makefile does so for the slow suites, so that they test the
compiled package that users get. It is NOT the in-process broker of `penstock.testing`:
crashes and memory are only true for a process of its own.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.core.settings.config import describe_settings
from tests.oracle.running_broker import HOST, Recipe, RunningBroker, free_port

ROOT = Path(__file__).resolve().parents[2]
AUTHORIZER = "authorizer.class.name"


def penstock_environment(properties: Mapping[str, str]) -> dict[str, str]:
    """Kafka's settings as variables of Penstock's environment; what it has not got is left out."""
    known = {info.kafka_name: info.environment_name for info in describe_settings()}
    found = {known[name]: value for name, value in properties.items() if name in known}
    if AUTHORIZER in properties:
        found["PENSTOCK_SECURITY__AUTHORIZER"] = "acl"
    return found


def penstock_broker(
    folder: Path,
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    data_dir: Path | None = None,
    from_source: bool = False,
) -> RunningBroker:
    """A broker whose data lies below `folder` (or in `data_dir`), not started yet.

    With `from_source` it is never the installed package: compiled classes cannot be changed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = data_dir or folder / "data"
    port = free_port()
    installed = None if from_source else os.environ.get("PENSTOCK_BROKER_PYTHON")
    command = [
        installed or sys.executable,
        "-m",
        "penstock",
        "serve",
        "--host",
        HOST,
        "--port",
        str(port),
        "--data-dir",
        str(data),
        *arguments,
    ]
    inherited = os.environ.get("PYTHONPATH", "")
    parts = (str(_without_hypothesis(folder)), str(ROOT / "src"), inherited)
    path = os.pathsep.join(part for part in parts if part)
    # The installed package must not be hidden by a source tree that tests have on their path.
    own = {"PYTHONPATH": "" if installed else path, "PENSTOCK_ADMIN__ENABLED": "false"}
    recipe = Recipe("penstock", command, {**own, **(environment or {})}, data)
    return RunningBroker(recipe, folder=folder, port=port)


def _without_hypothesis(folder: Path) -> Path:
    """A place on the module path that hides Hypothesis, which users do not have.

    The schema classes register strategies with it if it is there: two and a half seconds of
    computing in a new folder, in the middle of the first request.
    """
    place = folder / "modules"
    place.mkdir(exist_ok=True)
    (place / "hypothesis.py").write_text('raise ImportError("not for a broker")\n')
    return place
