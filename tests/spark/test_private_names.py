"""Private names of pyiceberg, deltalake and Spark: each has a contract, so an upgrade fails here.

Guarantees: each name of the table in `docs/dependencies.md` exists, has the shape and does what
Penstock relies on, and each use in `penstock.spark` is in the table. With a new version of a
library, this module says what changed, before a pipeline does. The contracts of pyiceberg are in
`test_private_names_of_iceberg`.
"""

import ast
import inspect
import sys
from importlib import import_module
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.update.snapshot import _OverwriteFiles

from tests.spark.foreign_names import (
    NONE_FOUND,
    Use,
    documented_rows,
    inherited_names,
    names_in,
    used_names,
)
from tests.spark.name_contracts import contract, names_with_contract

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHER_CONTRACTS: Final = "tests.spark.test_private_names_of_iceberg"
ROWS: Final = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]})


class NewOverwrite(_OverwriteFiles):
    """Uses and replaces private names; no other test uses it."""

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        self._own = len(self._written_manifests)
        return manifests[: self._own]


# --- The list ---


@pytest.mark.slow  # it reads and imports the whole package
def test_each_use_is_in_the_table() -> None:
    listed = {Use(path, row.last) for row in documented_rows() for path in row.paths}
    used = used_names()
    assert used - listed == set(), "list it in docs/dependencies.md, and add its contract"
    private = {one for one in listed if one.name.startswith("_")}
    assert private - used == set(), "no longer used: remove it from docs/dependencies.md"


def test_each_name_has_a_contract() -> None:
    import_module(OTHER_CONTRACTS)
    assert {row.name for row in documented_rows()} == names_with_contract()


def test_each_name_says_what_would_retire_it() -> None:
    for row in documented_rows():
        assert row.purpose, row
        assert row.issue.startswith(NONE_FOUND) or "github.com/" in row.issue, row


@pytest.mark.parametrize(
    "source",
    [
        "from pyiceberg.table import _new",
        "from deltalake._new import table",
        "import pyspark._new",
        "table._new",
        "table.io._new = 1",
        "def used(self): return self.table._new()",
        "getattr(table, '_new', None)",
        "setattr(table, '_new', 1)",
    ],
)
def test_a_new_use_is_found(source: str) -> None:
    assert set(names_in(ast.parse(source))) == {"_new"}


def test_a_new_use_in_a_subclass_is_found() -> None:
    module = sys.modules[__name__]
    tree = ast.parse(inspect.getsource(NewOverwrite))
    assert set(inherited_names(tree, module)) == {"_process_manifests", "_written_manifests"}


def test_own_names_are_not_found() -> None:
    source = "self._own; cls._own; super()._own; one._replace(a=1); __name__; one.__class__"
    assert set(names_in(ast.parse(source))) == set()


# --- deltalake ---


@contract("DeltaTable._table")
def test_the_folder_of_a_table_is_reached_by_its_handle(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "orders", ROWS)
    handle = DeltaStorageHandler.from_table(DeltaTable(tmp_path / "orders")._table)
    found = fs.PyFileSystem(handle).get_file_info(fs.FileSelector("_delta_log"))
    assert [one.base_name for one in found] == [f"{0:020}.json"]


@contract("DeltaStorageHandler._handler")
def test_a_file_of_the_storage_takes_bytes(tmp_path: Path) -> None:
    handle = DeltaStorageHandler(f"file://{tmp_path}")
    file: Any = handle._handler.open_output_stream("x", None)
    file.write(b"some")
    with pytest.raises(TypeError):
        file.write(pa.py_buffer(b"more"))
    assert isinstance(file.tell(), int)
    file.close()
    assert (tmp_path / "x").read_bytes() == b"some"


# --- Spark, without Java ---


@contract("java_gateway.Popen")
def test_java_is_started_by_a_name_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkConf, java_gateway

    class StartedError(Exception):
        pass

    def started(*_words: object, **_named: object) -> None:
        raise StartedError

    assert java_gateway.Popen is Popen  # type: ignore[attr-defined] # not declared
    monkeypatch.setattr(java_gateway, "Popen", started)
    with pytest.raises(StartedError):
        java_gateway.launch_gateway(SparkConf(loadDefaults=False))  # type: ignore[no-untyped-call]


@contract("SparkContext._gateway", "SparkContext._jvm", "SparkContext._active_spark_context")
def test_a_context_without_a_gateway_starts_java(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    class StartedError(Exception):
        pass

    def started(_conf: object) -> None:
        raise StartedError

    monkeypatch.setattr(sys.modules[SparkContext.__module__], "launch_gateway", started)
    for name in ("_gateway", "_jvm", "_active_spark_context"):
        assert name in vars(SparkContext)
        monkeypatch.setattr(SparkContext, name, None)
    with pytest.raises(StartedError):
        SparkContext._ensure_initialized(None)


# --- Spark, with Java ---


@pytest.mark.spark
@pytest.mark.every_spark
class TestWithJava:
    """Names that need a session."""

    @contract("SparkSession._instantiatedSession", "SparkSession._activeSession")
    def test_the_session_is_known_to_its_class(self, spark: "SparkSession") -> None:
        kind: Any = type(spark)
        assert kind._instantiatedSession is not None
        assert {"_instantiatedSession", "_activeSession"} <= set(vars(kind))
        assert kind.builder.getOrCreate()._jsparkSession is spark._jsparkSession

    @contract("gateway.proc", "gateway.gateway_property")
    def test_the_gateway_has_its_process_and_its_pool(self, spark: "SparkSession") -> None:
        gateway: Any = spark.sparkContext._gateway
        assert isinstance(gateway.proc, Popen)
        assert callable(gateway.gateway_property.pool.clear)

    @contract("SparkContext._accumulatorServer")
    def test_the_server_of_accumulators_reports_errors_by_a_method(
        self, spark: "SparkSession"
    ) -> None:
        server: Any = vars(type(spark.sparkContext))["_active_spark_context"]._accumulatorServer
        assert callable(server.handle_error)

    @contract("SparkContext._jsc")
    def test_the_context_of_java_says_whether_it_stopped(self, spark: "SparkSession") -> None:
        java: Any = spark.sparkContext._jsc
        assert java.sc().isStopped() is False

    @contract(
        "SparkSession._jsparkSession",
        "SparkSession._jvm",
        "DataFrame._jdf",
        "SparkSession.cloneSession",
        "Dataset.ofRows",
    )
    def test_rows_move_into_a_session_of_their_own(self, spark: "SparkSession") -> None:
        from penstock.spark.tables.run.spark_rules import in_own_session

        spark.range(2).createOrReplaceTempView("of_theirs")
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        try:
            moved = in_own_session(spark.range(3))
            own = moved.sparkSession
            assert own._jsparkSession is not spark._jsparkSession
            assert own.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
            own.conf.set("spark.sql.session.timeZone", "UTC")
            assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
            assert [one.id for one in own.table("of_theirs").collect()] == [0, 1]
            assert [one.id for one in moved.collect()] == [0, 1, 2]
        finally:
            spark.conf.unset("spark.sql.session.timeZone")
            spark.catalog.dropTempView("of_theirs")
