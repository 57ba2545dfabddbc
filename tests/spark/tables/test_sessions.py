"""Which sessions a pipeline takes."""

import pytest

from penstock.spark import session
from penstock.spark.connect_session import ConnectFailedError, remote_of
from penstock.spark.errors import OptionError
from penstock.spark.session import open_session


def test_a_session_has_one_place() -> None:
    remote = {"SPARK_REMOTE": "sc://elsewhere"}
    assert remote_of(None, {}) is None
    assert remote_of("local[2]", {}) is None
    assert remote_of("sc://here", remote) == "sc://here"
    assert remote_of(None, remote) == "sc://elsewhere"
    with pytest.raises(OptionError, match=r"local\[2\].*sc://elsewhere.*Unset SPARK_REMOTE"):
        remote_of("local[2]", remote)


def test_a_connect_server_that_does_not_answer_is_an_error_at_once() -> None:
    with pytest.raises(ConnectFailedError, match="no Spark Connect server answers at sc://127"):
        open_session("orders", master="sc://127.0.0.1:9/;token=secret", conf={})


def test_other_forms_of_spark_remote_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "local[2]")
    with pytest.raises(OptionError, match="not the address of a Spark Connect server"):
        open_session("orders", master=None, conf={})


class Builder:
    """Takes settings as Spark's own does."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    def appName(self, _name: str) -> "Builder":
        return self

    def master(self, _name: str) -> "Builder":
        return self

    def config(self, key: str, value: str) -> "Builder":
        self.given[key] = value
        return self

    def getOrCreate(self) -> dict[str, str]:
        return self.given


class Sessions:
    """In place of Spark's."""

    def __init__(self) -> None:
        self.builder = Builder()


@pytest.mark.parametrize(("master", "is_plain"), [("local[2]", True), ("spark://host:7077", False)])
def test_a_checkpoint_of_this_machine_has_no_files_of_checksums(
    monkeypatch: pytest.MonkeyPatch, master: str, is_plain: bool
) -> None:
    made = Sessions()
    monkeypatch.setattr(session, "SparkSession", made)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    open_session("orders", master=master, conf={})
    assert (session.PLAIN_FILES.items() <= made.builder.given.items()) is is_plain
    assert (session.WARM_WORKERS.items() <= made.builder.given.items()) is is_plain
    (name,) = session.PLAIN_FILES
    open_session("orders", master=master, conf={name: "mine"})
    assert made.builder.given[name] == "mine"
