"""Which sessions a pipeline takes."""

import pytest

from penstock.spark.errors import OptionError
from penstock.spark.session import open_session


def test_spark_connect_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="does not run over Spark Connect"):
        open_session("orders", master="sc://somewhere", conf={})
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    with pytest.raises(OptionError, match=r"sc://elsewhere.*Unset SPARK_REMOTE"):
        open_session("orders", master=None, conf={})
