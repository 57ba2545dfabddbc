"""Which sessions a pipeline takes."""

import pytest

from penstock.spark import session
from penstock.spark.errors import OptionError
from penstock.spark.session import open_session


def test_spark_connect_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="does not run over Spark Connect"):
        open_session("orders", master="sc://somewhere", conf={})
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    with pytest.raises(OptionError, match=r"sc://elsewhere.*Unset SPARK_REMOTE"):
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
    (name,) = session.PLAIN_FILES
    open_session("orders", master=master, conf={name: "mine"})
    assert made.builder.given[name] == "mine"
