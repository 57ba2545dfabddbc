"""Checks of a new session of Spark Connect: settings, and the version of the server's tasks."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from penstock.spark import connect_session
from penstock.spark.errors import OptionError

REMOTE = "sc://host:15002/;token=secret"
Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class OneTask:
    """A DataFrame with one row, whose task runs here."""

    def mapInArrow(self, function: Function, _schema: str) -> "OneTask":
        self.pickled: bytes = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
        return self

    def collect(self) -> list[tuple[str]]:
        one = pa.RecordBatch.from_pydict({"id": [0]})
        (answer,) = cloudpickle.loads(self.pickled)(iter([one]))
        return [(answer["version"][0].as_py(),)]


class Session:
    """The client of a server that refuses settings of Java."""

    def __init__(self) -> None:
        self.task = OneTask()
        self.given: dict[str, str] = {}
        self.conf = self

    def range(self, *_: int) -> OneTask:
        return self.task

    def set(self, key: str, value: str) -> None:
        if key.startswith("spark.driver."):
            raise PySparkException(f"[CANNOT_MODIFY_CONFIG] Cannot modify {key}.")
        self.given[key] = value


def checked(session: Any) -> None:  # noqa: ANN401 - stands for a session
    connect_session._require_same_version(session, REMOTE)


def test_the_check_runs_where_penstock_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    checked(session)
    for name in ("penstock", "penstock.spark", "penstock.spark.connect_session"):
        monkeypatch.setitem(sys.modules, name, None)
    assert session.task.collect() == [("missing",)]


def test_another_version_is_refused_with_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_session, "_own_version", lambda: "9.9.9")
    with pytest.raises(OptionError, match=r"has version .* and has version 9\.9\.9 here") as error:
        checked(Session())
    assert "secret" not in str(error.value)
    assert "Install the same version there" in str(error.value)


def test_a_server_without_penstock_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    monkeypatch.setattr(OneTask, "collect", lambda _: [("missing",)])
    with pytest.raises(OptionError, match="is not installed in the Python of the Connect server"):
        checked(session)


def test_a_setting_that_the_server_refuses_is_an_error() -> None:
    session: Any = Session()
    connect_session._configure(session, {"spark.master": "sc://host", "spark.sql.x": "1"})
    assert session.given == {"spark.sql.session.timeZone": "UTC", "spark.sql.x": "1"}
    with pytest.raises(OptionError, match=r"spark\.driver\.memory cannot be set by a client"):
        connect_session._configure(session, {"spark.driver.memory": "4g"})


SECRETS = (
    "sc://host:15002/;token=TOPSECRET",
    "SC://host:15002/;use_ssl=true;token=TOPSECRET",
    "https://h/;token=TOPSECRET",
    "sc://user:TOPSECRET@host:15002",
)


@pytest.mark.parametrize("remote", SECRETS)
def test_no_message_has_the_token_of_an_address(remote: str) -> None:
    assert "TOPSECRET" not in connect_session.shown(remote)
    with pytest.raises(OptionError) as error:
        connect_session.remote_of("local[2]", {"SPARK_REMOTE": remote})
    assert "TOPSECRET" not in str(error.value)
    if not remote.startswith("sc://"):
        with pytest.raises(OptionError, match="not the address") as error:
            connect_session.open_connect("x", remote, {})
        assert "TOPSECRET" not in str(error.value)


def test_the_reason_of_spark_is_shown_without_the_token() -> None:
    remote = SECRETS[1]
    text = connect_session.without_secrets(f"{remote}: UNAUTHENTICATED for TOPSECRET", remote)
    assert text == "SC://host:15002/: UNAUTHENTICATED for ***"
