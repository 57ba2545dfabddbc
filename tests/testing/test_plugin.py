"""The plugin in projects of its own: each test here is a small project that pytest runs.

In this process, where the broker is imported already. Plugins are loaded by name and not by entry
points, so that nothing depends on installed packages.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.testing import Broker, fixture_settings, plugin, topic_names
from penstock.testing.records_fixture import Records

SECONDS_MAX = 60
OWN_LOADING = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"


class Project:
    """A folder with a file of tests that use the plugin."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester

    def write(self, test: str, settings: Sequence[str] = ()) -> None:
        lines = ["[pytest]", "filterwarnings = error", *settings]
        self._pytester.makeini("\n".join(lines))
        self._pytester.makepyfile(test)

    def run(self, test: str, settings: Sequence[str] = (), *options: str) -> str:
        """What pytest prints of the test; it ends with the counts."""
        self.write(test, settings)
        done = self._pytester.runpytest_inprocess(
            "--strict-markers", "--strict-config", *options, plugins=[plugin]
        )
        return str(done.stdout) + str(done.stderr)


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Import now what every project would import again: its modules are thrown away."""
    assert fixture_settings.KEYWORDS
    assert topic_names.fresh_topic_name("")
    with Broker() as broker:
        broker.produce("orders", "paid")
        assert Records(broker)("orders", count=1)
        broker.crash()


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv(OWN_LOADING, "1")
    return Project(pytester)


def ends_with(output: str, counts: str) -> bool:
    """Whether the last line tells these counts; else the whole output is shown."""
    last = output.strip().splitlines()[-1]
    assert counts in last, output
    return True


FIXTURES = """
def test_first(penstock_broker, penstock_topic, penstock_records):
    penstock_broker.produce(penstock_topic, "paid", key="42")
    (record,) = penstock_records(penstock_topic, count=1)
    assert (record.key, record.value) == ("42", "paid")
    penstock_broker.crash()


def test_second(penstock_broker, penstock_topic, penstock_records):
    assert penstock_broker.is_running, "what one test did to its broker, another does not see"
    assert penstock_records(penstock_topic) == []


def test_third(penstock_session_broker):
    penstock_session_broker.produce("shared", "once")


def test_fourth(penstock_session_broker):
    assert len(penstock_session_broker.records("shared")) == 1
"""


def test_fixtures_with_warnings_as_errors(project: Project) -> None:
    assert ends_with(project.run(FIXTURES), "4 passed")


IN_PROCESSES = """
import os
import pytest

@pytest.mark.parametrize("number", range(4))
def test_own(number, penstock_broker, penstock_topic, penstock_session_broker):
    assert os.environ["PYTEST_XDIST_WORKER"] in ("gw0", "gw1")
    penstock_broker.produce(penstock_topic, str(number))
    assert [record.value for record in penstock_broker.records(penstock_topic)] == [str(number)]
    penstock_session_broker.produce(penstock_topic, "fresh names only")
    assert len(penstock_session_broker.records(penstock_topic)) == 1
    penstock_broker.crash()
    penstock_broker.restart()
"""


@pytest.mark.interop
def test_in_two_processes_and_in_any_order(project: Project, pytester: pytest.Pytester) -> None:
    """Each process has its own brokers; pytest-randomly sets every seed anew before each test."""
    project.write(IN_PROCESSES)
    plugins = [
        part
        for name in ("penstock.testing.plugin", "xdist", "pytest_randomly")
        for part in ("-p", name)
    ]
    done = pytester.runpytest_subprocess(*plugins, "-n", "2", timeout=SECONDS_MAX)
    assert ends_with(str(done.stdout), "4 passed")


def test_a_shared_broker(project: Project) -> None:
    test = """
seen = []

def test_first(penstock_broker, penstock_topic):
    seen.append((penstock_broker.port, penstock_topic))

def test_second(penstock_broker, penstock_topic):
    (port, topic), = seen
    assert penstock_broker.port == port
    assert penstock_topic != topic
"""
    output = project.run(test, ["penstock_broker_scope = session"])
    assert ends_with(output, "2 passed")


def test_settings_of_the_project_and_of_a_test(project: Project) -> None:
    test = """
import pytest

def partitions(broker, topic):
    for partition in range(9):
        try:
            broker.records(topic, partitions=[partition])
        except Exception:
            return partition

def test_project(penstock_broker, penstock_topic):
    assert partitions(penstock_broker, penstock_topic) == 2

@pytest.mark.penstock(default_partitions=3)
def test_keyword(penstock_broker, penstock_topic):
    assert partitions(penstock_broker, penstock_topic) == 3

@pytest.mark.penstock({"topic_defaults.partitions_default": 4})
def test_table(penstock_broker, penstock_topic):
    assert partitions(penstock_broker, penstock_topic) == 4

@pytest.mark.penstock(storage="disk")
def test_disk(penstock_broker, tmp_path_factory):
    assert list(tmp_path_factory.getbasetemp().glob("penstock*/metadata.sqlite3"))
"""
    settings = ["penstock_settings =", "    topic_defaults.partitions_default = 2"]
    assert ends_with(project.run(test, settings), "4 passed")


@pytest.mark.parametrize("is_of_project", [True, False])
def test_a_directory_that_is_named_is_the_one(
    project: Project, tmp_path: Path, is_of_project: bool
) -> None:
    place = tmp_path / "named"
    mark = f'@pytest.mark.penstock({{"node.data_dir": "{place}"}})\n'
    test = f"""
import pytest

{"" if is_of_project else mark}def test_it(penstock_broker, penstock_topic):
    penstock_broker.produce(penstock_topic, "kept")
"""
    settings = [f"penstock_settings = node.data_dir = '{place}'"] if is_of_project else []
    assert ends_with(project.run(test, settings), "1 passed")
    assert list(place.rglob("*.log"))


@pytest.mark.parametrize(
    ("marker", "settings", "message"),
    [
        ("partitions=3", [], "partitions is not a keyword of penstock.BrokerConfig"),
        ("3", [], "takes one table of settings"),
        ("", ["penstock_broker_scope = test"], "penstock_broker_scope = 'test' is none of"),
        ("", ["penstock_settings = topic_defaults.p = 3"], "topic_defaults.p (penstock_settings"),
    ],
)
def test_wrong_settings_are_told_in_a_line(
    project: Project, marker: str, settings: list[str], message: str
) -> None:
    test = f"""
import pytest

@pytest.mark.penstock({marker})
def test_it(penstock_broker):
    pass
"""
    assert message in project.run(test, settings)


def test_a_failure_shows_what_arrived(project: Project) -> None:
    test = """
def test_it(penstock_broker, penstock_topic, penstock_records):
    penstock_broker.produce(penstock_topic, "paid", key="42")
    penstock_records(penstock_topic, count=2, timeout_seconds=0.05)
"""
    output = project.run(test)
    assert ends_with(output, "1 failed")
    assert "RecordsMissingError: 2 records were expected in 'test_it-" in output
    assert "-0 at 0: key '42', value 'paid'" in output


ASYNC = """
import asyncio
import pytest

{mark}
async def test_it(penstock_broker, penstock_topic, penstock_records):
    loop = asyncio.get_running_loop()
    late = loop.run_in_executor(None, penstock_broker.produce, penstock_topic, "late")
    (record,) = await penstock_records.until(penstock_topic, count=1)
    await late
    assert record.value == "late"
    penstock_broker.crash()
    penstock_broker.restart()
    assert len(penstock_records(penstock_topic)) == 1
"""


def test_beside_an_event_loop_of_anyio(project: Project) -> None:
    backend = '@pytest.mark.anyio\n@pytest.mark.parametrize("anyio_backend", ["asyncio"])'
    output = project.run(ASYNC.format(mark=backend), (), "-p", "anyio.pytest_plugin")
    assert ends_with(output, "1 passed")


def test_it_imports_nothing_but_pytest(tmp_path: Path) -> None:
    """It is loaded in every project that has Penstock installed."""
    program = """
import sys
import pytest
before = set(sys.modules)
import penstock.testing.plugin
print(sorted(set(sys.modules) - before))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    assert done.stdout.strip() == str(["penstock", "penstock.testing", "penstock.testing.plugin"])
