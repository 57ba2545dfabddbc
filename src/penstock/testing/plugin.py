"""The pytest plugin: `penstock_broker`, `penstock_topic`, `penstock_records`. Nothing to configure.

    def test_my_service(penstock_broker, penstock_topic, penstock_records):
        my_service.run_once(penstock_broker.bootstrap_server, penstock_topic)
        assert [record.value for record in penstock_records(penstock_topic, count=1)] == ["done"]

pytest loads this file in every project that has Penstock installed. So it imports only pytest: the
broker is imported by the first test that uses one.

Each test gets a broker of its own, because one costs milliseconds and a crashed one must not affect
other tests. `penstock_broker_scope = "session"` (or module, class, package) in the project's pytest
settings shares it; each process of pytest-xdist has its own either way.

Settings: `@pytest.mark.penstock(default_partitions=3)` for one test, with the keywords of
`penstock.BrokerConfig`, or a table of keys such as `{"flush.mode": "os"}`; the option
`penstock_settings` for all, with lines such as `topic_defaults.partitions_default = 3`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest

if TYPE_CHECKING:
    from penstock.testing.broker import Broker
    from penstock.testing.records_fixture import Records

_Scope = Literal["session", "package", "module", "class", "function"]

MARKER = "penstock"
SCOPE_OPTION = "penstock_broker_scope"
SETTINGS_OPTION = "penstock_settings"
SCOPES = ("function", "class", "module", "package", "session")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the project's pytest settings."""
    parser.addini(
        SCOPE_OPTION,
        f"who shares a penstock_broker: {', '.join(SCOPES)}",
        default="function",
    )
    parser.addini(
        SETTINGS_OPTION,
        "settings of every penstock_broker, one a line: topic_defaults.partitions_default = 3",
        type="linelist",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(settings={{}}, **keywords): settings of this test's penstock_broker, "
        "as keywords of penstock.BrokerConfig or a table of keys",
    )


def _broker_scope(fixture_name: str, config: pytest.Config) -> _Scope:  # noqa: ARG001 (pytest's)
    scope = config.getini(SCOPE_OPTION)
    if scope not in SCOPES:
        raise pytest.UsageError(f"{SCOPE_OPTION} = {scope!r} is none of {', '.join(SCOPES)}")
    return cast("_Scope", scope)


@pytest.fixture(scope=_broker_scope)
def penstock_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[Broker]":
    """A running broker in this process, with faults on demand; for this test alone by default."""
    marker = request.node.get_closest_marker(MARKER)
    yield from _running_broker(request.config, marker, tmp_path_factory)


@pytest.fixture(scope="session")
def penstock_session_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[Broker]":
    """A running broker that all tests share, for tests that do not change its settings."""
    yield from _running_broker(request.config, None, tmp_path_factory)


@pytest.fixture
def penstock_topic(request: pytest.FixtureRequest, penstock_broker: "Broker") -> str:
    """A new topic of `penstock_broker`, with a name that no other test has."""
    from penstock.testing.topic_names import fresh_topic_name

    name = fresh_topic_name(request.node.name)
    penstock_broker.create_topic(name, partitions=-1)
    return name


@pytest.fixture
def penstock_records(penstock_broker: "Broker") -> "Records":
    """Reads a topic of `penstock_broker`: `penstock_records(topic, count=3)` waits for three."""
    from penstock.testing.records_fixture import Records

    return Records(penstock_broker)


def _running_broker(
    config: pytest.Config,
    marker: pytest.Mark | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> "Iterator[Broker]":
    from penstock.core.errors import ConfigError
    from penstock.testing.broker import Broker
    from penstock.testing.fixture_settings import broker_settings, names_data_dir

    table, keywords = _marked(marker)
    lines = config.getini(SETTINGS_OPTION)
    try:
        settings = broker_settings(lines, table, keywords)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None
    if settings.node.storage == "disk" and not names_data_dir(lines, table, keywords):
        place = str(tmp_path_factory.mktemp("penstock"))
        node = settings.node.model_copy(update={"data_dir": place})
        settings = settings.model_copy(update={"node": node})
    with Broker(settings) as broker:
        yield broker


def _marked(marker: pytest.Mark | None) -> tuple[dict[str, object], dict[str, Any]]:
    """Return the table and the keywords of a marker."""
    if marker is None:
        return {}, {}
    keywords = dict(marker.kwargs)
    table = keywords.pop("settings", marker.args[0] if marker.args else {})
    if not isinstance(table, dict) or len(marker.args) > 1:
        raise pytest.UsageError(
            f"@pytest.mark.{MARKER} takes one table of settings, such as "
            '{"topic_defaults.partitions_default": 3}, and keywords of penstock.BrokerConfig'
        )
    return table, keywords
