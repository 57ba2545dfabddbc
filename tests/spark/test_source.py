"""The source's interface to Spark, without a session: name, columns, limits, pickled parts."""

import pickle
import subprocess
import sys

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.core.types import TopicPartition
from penstock.spark.data_source import PenstockDataSource
from penstock.spark.decode.columns import spark_schema
from penstock.spark.errors import OptionError
from penstock.spark.planning import LossAddress, OffsetRange, ReadLimits, ReadTask
from penstock.spark.source.batch_reader import PenstockBatchReader
from penstock.spark.source.stream_reader import PenstockStreamReader
from pyspark_penstock import DefaultSource

GIVEN = {"kafka.bootstrap.servers": "one:9092", "subscribe": "orders"}


def source(**options: str) -> PenstockDataSource:
    return PenstockDataSource(CaseInsensitiveDict({**GIVEN, **options}))


def test_spark_finds_it_by_its_name() -> None:
    assert DefaultSource is PenstockDataSource
    assert DefaultSource.name() == "penstock"


@pytest.mark.parametrize("include_headers", ["true", "false"])
def test_the_columns_are_those_that_are_decoded(include_headers: str) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    expected = to_arrow_schema(source(includeHeaders=include_headers).schema(), timezone="UTC")
    # Spark compares the first batch with this, types and nullability and all.
    assert expected.equals(spark_schema(include_headers=include_headers == "true"))


def test_other_columns_are_refused() -> None:
    made = source()
    assert isinstance(made.reader(made.schema()), PenstockBatchReader)
    assert isinstance(made.streamReader(made.schema()), PenstockStreamReader)
    for wrong in (StructType(), source(includeHeaders="true").schema()):
        with pytest.raises(OptionError, match="Leave schema"):
            made.reader(wrong)
        with pytest.raises(OptionError, match="Leave schema"):
            made.streamReader(wrong)


def test_wrong_options_are_told_when_spark_asks_for_the_columns() -> None:
    with pytest.raises(OptionError, match="failOnDataLoss"):
        source(failOnDataLoss="perhaps").schema()


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "1k"}, ReadMaxBytes(1024)),
        ({"minOffsetsPerTrigger": "3"}, ReadMinRows(3)),
        ({"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "1k", "maxOffsetsPerTrigger": "5"}, ReadMaxRows(5)),
    ],
)
def test_the_limit_that_spark_hands_back(options: dict[str, str], limit: ReadLimit) -> None:
    reader = PenstockStreamReader({**GIVEN, **options})
    assert reader.getDefaultReadLimit() == limit
    found = reader._limits(limit)
    assert found.offsets_max == (5 if "maxOffsetsPerTrigger" in options else None)
    assert found.offsets_min == (3 if "minOffsetsPerTrigger" in options else None)
    assert found.bytes_max == (1024 if "maxBytesPerTrigger" in options else None)


def test_the_engine_has_the_last_word() -> None:
    reader = PenstockStreamReader({**GIVEN, "maxOffsetsPerTrigger": "5"})
    assert reader._limits(ReadAllAvailable()) == ReadLimits()
    assert reader._limits(ReadMaxRows(2)).offsets_max == 2
    assert reader._limits(ReadMaxFiles(1)) == ReadLimits()


def test_the_stream_can_stop_at_the_present_end() -> None:
    assert issubclass(PenstockStreamReader, SupportsTriggerAvailableNow)


def test_readers_and_tasks_travel() -> None:
    where = LossAddress("driver", 4040, "secret", 7)
    for losses_to in (None, where):
        task = ReadTask(OffsetRange(TopicPartition("orders", 1), 5, 9), "id", 3, losses_to)
        assert pickle.loads(pickle.dumps(InputPartition(task))).value == task
    for reader in (PenstockBatchReader(GIVEN), PenstockStreamReader(GIVEN)):
        assert len(pickle.dumps(reader)) < 2000
        assert type(pickle.loads(pickle.dumps(reader))) is type(reader)


def test_a_batch_without_tasks_has_no_rows() -> None:
    assert list(PenstockBatchReader(GIVEN).read(InputPartition(None))) == []


def test_a_stream_reader_can_stop_before_it_started() -> None:
    PenstockStreamReader(GIVEN).stop()


def test_finding_the_source_costs_little() -> None:
    program = (
        "import sys, pyspark_penstock\n"
        "heavy = [name for name in ('penstock.client', 'kio', 'pyarrow') if name in sys.modules]\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_spark_it_says_what_to_install(missing: str) -> None:
    program = f"import sys; sys.modules['{missing}'] = None; import penstock.spark"
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert f"needs {missing}" in done.stderr
    assert "pip install 'penstock[spark]'" in done.stderr
