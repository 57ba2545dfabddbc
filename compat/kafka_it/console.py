"""JUnit's console over Apache Kafka's test jars, with our shim first on the class path.

Guarantees: the jars and the compiled shim come from the cache and match the sources in this folder.
Each class runs in a JVM of its own with a time limit, so a class that hangs fails alone. A
test's name is `Class.method(parameters)[number]`, the same at each run.

This module does NOT start brokers: `run` and `launch` pass the options with the addresses of the
brokers to the shim.
"""

import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compat.suite import Result, Results
from tests.oracle.cache import built, content_key, progress, run, tool
from tests.oracle.kafka_jars import java, java_version

FOLDER = Path(__file__).resolve().parent


def prepared() -> Path:
    """The folder with `lib` (the jars of Kafka's tests) and `shim` (our classes, compiled)."""
    pom = FOLDER / "pom.xml"
    shim = FOLDER / "shim"
    sources = sorted(shim.glob("*.java"))
    services = sorted((shim / "META-INF" / "services").iterdir())

    def build(folder: Path) -> None:
        progress("downloading the jars of Apache Kafka's tests (66 MB)")
        maven = tool("mvn", "install Maven (Debian: maven)")
        library = folder / "lib"
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={library}"]
        run([maven, "-q", "-B", "-f", pom, *goal])
        javac = tool("javac", "install a JDK, 17 or later (Debian: default-jdk-headless)")
        run([javac, "-nowarn", "-d", folder / "shim", "-cp", f"{library}/*", *sources])
        shutil.copytree(shim / "META-INF", folder / "shim" / "META-INF")

    key = content_key(pom, *sources, *services, java_version())
    return built(f"compat/kafka-it-{key}", build)


def selectors(classes: Sequence[str], wanted: Sequence[str]) -> list[list[str]]:
    """One group of console arguments for each class; `wanted` has `Class` or `Class.method`.

    A method is the beginning of names, as a regular expression.
    """
    if not wanted:
        return [["-c", name] for name in classes]
    by_name = {name.rpartition(".")[2]: name for name in classes}
    groups = []
    for word in wanted:
        short, _, method = word.partition(".")
        full = by_name.get(short)
        if full is None:
            raise SystemExit(f"class {short} not found; available: {', '.join(sorted(by_name))}")
        groups.append(["-c", full])
        if method:
            groups[-1] += ["--include-methodname", f".*{re.escape(full)}#{method}.*"]
    return groups


def read_report(report: Path) -> dict[str, Result]:
    """Results of one XML report; the message of each failure is printed."""
    results = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        failure = case.find("failure")
        problem = case.find("error") if failure is None else failure
        if case.find("skipped") is not None:
            results[name] = Result.SKIPPED
        elif problem is not None:
            results[name] = Result.FAILED
            text = problem.get("message") or problem.get("type") or ""
            print(f"  {name}: {text[:300]}", flush=True)
        else:
            results[name] = Result.PASSED
    return results


@dataclass(frozen=True)
class TimeLimits:
    """Time limits of a run."""

    test_seconds_max: int
    class_seconds_max: int = 1_500
    """A class that takes longer is ended, and its tests do not count."""


def _run_class(
    options: Mapping[str, str], limits: TimeLimits, group: Sequence[str], folder: Path
) -> dict[str, Result]:
    place = prepared()
    command = [
        java(),
        "-XX:TieredStopAtLevel=1",
        *(f"-D{name}={value}" for name, value in options.items()),
        "-cp",
        f"{place / 'shim'}:{place / 'lib'}/*",
        "org.junit.platform.console.ConsoleLauncher",
        "execute",
        "--details=none",
        "--config=junit.jupiter.extensions.autodetection.enabled=true",
        f"--config=junit.jupiter.execution.timeout.default={limits.test_seconds_max}s",
        f"--reports-dir={folder}",
        *group,
    ]
    try:
        subprocess.run(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=limits.class_seconds_max,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"  {group[1]} did not finish in {limits.class_seconds_max} s")
    results = {}
    for report in folder.glob("TEST-*.xml"):
        results.update(read_report(report))
    return results


def run_groups(
    groups: Sequence[Sequence[str]], options: Mapping[str, str], limits: TimeLimits
) -> Results:
    """Run class by class; `options` are system properties for the shim."""
    results: dict[str, Result] = {}
    for group in groups:
        progress(f"kafka-it: {group[1].rpartition('.')[2]}")
        with tempfile.TemporaryDirectory(prefix="penstock-kafka-it-") as folder:
            results.update(_run_class(options, limits, group, Path(folder)))
    return results
