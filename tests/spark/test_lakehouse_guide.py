"""The first row of a lakehouse: the guide's page typed as printed, on real servers, in minutes.

An Apache Kafka or a Penstock with TLS and SCRAM, Apache Iceberg's REST server, versitygw as S3. The
table below is all that is replaced in the page. The errors of its last section are provoked, and
their messages compared. It prints `first row: DuckDB N s, Spark N s (on kafka)`, which
`tools/prove.py` collects.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle.iceberg_rest import RestCatalog, rest_catalog
from tests.oracle.object_store import REGION, ObjectStore, object_store
from tests.oracle.secured_brokers import BROKERS, secured_broker
from tests.oracle.secured_kafka import SASL_SSL, SCRAM_512, USER
from tests.oracle.secured_penstock import SecuredBroker
from tests.oracle.spark_jars import iceberg_s3_jars
from tests.oracle.table_engines import engine_python
from tests.spark.lakehouse_page import (
    PAGE,
    Desk,
    has_lines,
    pieces,
    type_page,
    wrong_commands,
)

FIRST_ROW_SECONDS_MAX = 300.0
DUCKDB = "python query_duckdb.py"
SPARK = "spark41/bin/python query_spark.py"
BUCKET = "lake"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as running:
        running.create_bucket(BUCKET)
        running.add_user("reader", "reader-secret", role="user")
        yield running


@pytest.fixture(scope="module", params=BROKERS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    with secured_broker(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture
def catalog(store: ObjectStore, tmp_path: Path) -> Iterator[RestCatalog]:
    """A catalog of its own for each test: it hands out no keys, as the page assumes."""
    place = f"s3://{BUCKET}/{tmp_path.name}"
    with rest_catalog(tmp_path / "rest", store, place, hands_out_keys=False) as running:
        yield running


@pytest.fixture
def desk(broker: SecuredBroker, catalog: RestCatalog, store: ObjectStore, tmp_path: Path) -> Desk:
    folder = tmp_path / "desk"
    (folder / "jars").mkdir(parents=True)
    for jar in iceberg_s3_jars():
        (folder / "jars" / jar.name).symlink_to(jar)
    assert f"`{USER}`" in PAGE
    assert REGION in PAGE
    replaced = {
        "broker.example:9093": broker.bootstrap(SASL_SSL),
        "/etc/kafka/ca.pem": str(broker.ca),
        "https://catalog.example/iceberg": catalog.address,
        "https://s3.us-east-1.amazonaws.com": store.address,
        "alice-secret": broker.password(SCRAM_512),
        "lake-key": store.access_key,
        "lake-secret": store.secret_key,
        "spark41/bin/python": engine_python(),
    }
    return Desk(folder, replaced)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_first_row_and_the_errors(desk: Desk, request: pytest.FixtureRequest) -> None:
    seconds = type_page(desk)
    name = request.node.callspec.params["broker"]
    print(f"\nfirst row: DuckDB {seconds[DUCKDB]:.0f} s, Spark {seconds[SPARK]:.0f} s (on {name})")
    assert max(seconds[DUCKDB], seconds[SPARK]) < FIRST_ROW_SECONDS_MAX
    secret = desk.replaced["lake-secret"]
    for file in desk.folder.glob("*.*"):
        if file.is_file():
            assert secret not in file.read_text(), f"{file} has a secret in plain text"
    for piece in wrong_commands():
        done = desk.type(piece.command)
        output = done.stdout + done.stderr
        assert done.returncode != 0, f"{piece.command}\n{output}"
        assert has_lines(desk.here(piece.printed), output), f"{piece.command}\n{output}"
        assert secret not in output


def test_the_page_has_its_files_and_commands() -> None:
    found = list(pieces())
    assert [one.file for one in found if one.file] == [
        "client.properties",
        "orders.toml",
        "query_duckdb.py",
        "query_spark.py",
    ]
    typed = [one.command for one in found if one.command]
    assert DUCKDB in typed
    assert SPARK in typed
    assert len(re.findall(r"^\[pipeline\]$", PAGE, re.MULTILINE)) == 1, "one definition"
