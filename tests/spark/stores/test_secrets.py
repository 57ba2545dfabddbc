"""Secrets of catalogs and stores: references in the definition, and in nothing that is stored."""

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
from pyarrow import fs
from pyiceberg.catalog.rest import RestCatalog

from penstock.spark.tables.definition import references
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import PipelineDefinition, TableFormat, TableSettings
from penstock.spark.tables.definition.reader import read_definition
from penstock.spark.tables.files.data_files import FileLayout
from penstock.spark.tables.files.storages import Directory, StoreError, below, reached, storage_of
from penstock.spark.tables.formats.catalog_problems import catalog_error, making_error
from penstock.spark.tables.formats.delta.storage import (
    DeltaStorage,
    _Handler,
    s3_arguments,
    store_options,
)
from penstock.spark.tables.formats.iceberg.storage import IcebergStorage, has_expired, open_catalog
from penstock.spark.tables.formats.secrets import (
    SecretError,
    SecretFileError,
    hidden,
    resolved,
    version_of,
)
from tests.spark.tables.table_kinds import SCHEMA

CANARY = "canary-5f0c7d2e91ab"
REST = {"type": "rest", "uri": "https://catalog.example/iceberg"}


def definition(
    catalog: dict[str, str], format_: str = "iceberg", **table: str
) -> PipelineDefinition:
    return read_definition(
        {
            "pipeline": {"name": "orders", "bootstrap_servers": "b:9092", "checkpoint": "/c"},
            "source": {"topics": ["orders"]},
            "table": {"format": format_, "name": "shop.orders", "catalog": catalog, **table},
        },
        "orders.toml",
    )


@pytest.mark.parametrize(
    ("format_", "name"),
    [
        ("iceberg", "s3.secret-access-key"),
        ("iceberg", "s3.session-token"),
        ("iceberg", "token"),
        ("iceberg", "credential"),
        ("iceberg", "gcs.oauth2.token"),
        ("iceberg", "adls.account-key"),
        ("iceberg", "adls.connection-string"),
        ("iceberg", "adls.sas-token"),
        ("iceberg", "adls.client-secret"),
        ("delta", "AWS_SECRET_ACCESS_KEY"),
        ("delta", "aws_session_token"),
        ("delta", "azure_storage_account_key"),
        ("delta", "AZURE_STORAGE_SAS_KEY"),
        ("delta", "azure_client_secret"),
        ("delta", "google_service_account_key"),
    ],
)
def test_a_secret_in_plain_text_is_refused_with_the_remedy(format_: str, name: str) -> None:
    base = {"warehouse": "s3://lake/warehouse"} if format_ == "delta" else REST
    with pytest.raises(DefinitionError) as caught:
        definition({**base, name: CANARY}, format_)
    text = str(caught.value)
    assert f"table.catalog.{name}" in text
    assert "${env:NAME}" in text
    assert CANARY not in text
    definition({**base, name: "${env:LAKE_SECRET}"}, format_)
    definition({**base, name: "${file:/run/secrets/lake}"}, format_)


@pytest.mark.parametrize(
    "uri", ["postgresql://me:{}@db/catalog", "postgresql+psycopg2://me:{}@db:5432/catalog"]
)
def test_a_password_in_an_address_is_refused(uri: str) -> None:
    with pytest.raises(DefinitionError, match="it has a password in plain text"):
        definition({"type": "sql", "uri": uri.format(CANARY), "warehouse": "s3://lake/w"})
    found = definition(
        {"type": "sql", "uri": uri.format("${env:DB_PASSWORD}"), "warehouse": "s3://lake/w"}
    )
    assert CANARY not in repr(found)


@pytest.mark.parametrize("name", ["s3.access-key-id", "s3.region", "client.region", "s3.endpoint"])
def test_names_and_addresses_are_not_secrets(name: str) -> None:
    assert dict(definition({**REST, name: "plain"}).table.catalog)[name] == "plain"


def test_references_are_resolved_when_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_SECRET", CANARY)
    file = tmp_path / "token"
    file.write_text("first-token\n")
    options = {"a": "${env:LAKE_SECRET}", "b": f"${{file:{file}}}", "c": "x:${env:LAKE_SECRET}@y"}
    assert resolved(options) == {"a": CANARY, "b": "first-token", "c": f"x:{CANARY}@y"}
    before = version_of(options)
    assert CANARY not in before
    assert version_of(options) == before
    file.write_text("second-token\n")
    assert version_of(options) != before
    assert resolved(options)["b"] == "second-token"


def test_a_missing_secret_names_its_key_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(SecretError) as caught:
        resolved({"token": "${env:PENSTOCK_NOT_SET}"})
    assert "table.catalog.token" in str(caught.value)
    assert "spark.executorEnv.PENSTOCK_NOT_SET" in str(caught.value)
    with pytest.raises(SecretError, match="No such file"):
        resolved({"token": f"${{file:{tmp_path}/nothing}}"})
    (tmp_path / "large").write_bytes(b"x" * (references.SECRET_BYTES_MAX + 1))
    with pytest.raises(SecretError, match="65536 bytes"):
        resolved({"token": f"${{file:{tmp_path}/large}}"})
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(SecretError, match="not UTF-8"):
        resolved({"token": f"${{file:{tmp_path}/binary}}"})


def test_an_empty_secret_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_SECRET", "")
    with pytest.raises(
        SecretError, match=r"'table\.catalog\.token'.*LAKE_SECRET is empty"
    ) as caught:
        resolved({"token": "Bearer ${env:LAKE_SECRET}"})
    assert not isinstance(caught.value, SecretFileError)
    (tmp_path / "token").write_text("\n")
    with pytest.raises(SecretFileError, match=r"'table\.catalog\.token'.*token is empty"):
        resolved({"token": f"${{file:{tmp_path}/token}}"})


def test_errors_of_libraries_are_shown_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_SECRET", CANARY)
    catalog = {**REST, "s3.secret-access-key": "${env:LAKE_SECRET}"}
    settings = TableSettings(TableFormat.ICEBERG, "shop.orders", tuple(catalog.items()))
    error = RuntimeError(f"403 for key id x and {CANARY}")
    for found in (catalog_error(settings, error), making_error(settings, "shop.orders", error)):
        assert CANARY not in str(found)
        assert "***" in str(found)
    file = tmp_path / "secret"
    file.write_text("rotated-away-1")
    rotating = {"s3.secret-access-key": f"${{file:{file}}}"}
    resolved(rotating)
    file.write_text("rotated-away-2")
    assert "rotated" not in hidden("rotated-away-1 and rotated-away-2", rotating)
    references.keep_hidden({"s3.secret-access-key": "handed-out", "s3.access-key-id": "AKIA-X"})
    assert hidden("handed-out for AKIA-X", {}) == "*** for AKIA-X"


def test_remembered_values_are_bounded() -> None:
    for number in range(references.SEEN_MAX * 2):
        references.keep_hidden({"token": f"token-{number}"})
    assert len(references._seen) == references.SEEN_MAX


@pytest.mark.parametrize(
    "storage",
    [
        DeltaStorage(
            (("AWS_ACCESS_KEY_ID", "me"), ("AWS_SECRET_ACCESS_KEY", "${env:LAKE_SECRET}"))
        ),
        IcebergStorage(
            (
                ("type", "sql"),
                ("s3.region", "eu-central-2"),
                ("s3.access-key-id", "me"),
                ("s3.secret-access-key", "${env:LAKE_SECRET}"),
            ),
            "a.b",
        ),
    ],
)
def test_a_pickled_layout_has_its_storage_and_no_secret(
    storage: DeltaStorage | IcebergStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_SECRET", CANARY)
    storage.open("s3://lake/shop/orders")  # it has been resolved, and is not kept
    layout = FileLayout(Directory("s3://lake/shop/orders", storage), SCHEMA)
    data = pickle.dumps(layout)
    assert CANARY.encode() not in data
    found = pickle.loads(data)
    assert storage_of(found.directory) == storage
    assert storage_of(below(found.directory, "_changes")) == storage
    assert below(found.directory, "_changes") == "s3://lake/shop/orders/_changes"


def test_the_same_keys_open_the_log_and_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_SECRET", CANARY)
    options = {
        "AWS_ACCESS_KEY_ID": "me",
        "AWS_SECRET_ACCESS_KEY": "${env:LAKE_SECRET}",
        "aws_session_token": "t",
        "AWS_REGION": "eu-central-2",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "max_retries": "1",
    }
    assert store_options(options)["max_retries"] == "1"
    assert store_options(options)["retry_timeout"] == "30s"
    found = s3_arguments(resolved(options))
    assert found.pop("retry_strategy").max_attempts == 3, "the pipeline waits itself"
    assert found == {
        "access_key": "me",
        "secret_key": CANARY,
        "session_token": "t",
        "region": "eu-central-2",
        "endpoint_override": "http://127.0.0.1:1",
        "connect_timeout": 5,
        "request_timeout": 60,
    }
    assert s3_arguments({"virtual_hosted_style_request": "true"})["force_virtual_addressing"]
    assert s3_arguments({"aws_skip_signature": "true"})["anonymous"]


def test_a_store_that_is_away_is_an_error_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_SECRET", CANARY)
    storage = DeltaStorage((("AWS_SECRET_ACCESS_KEY", "${env:LAKE_SECRET}"),))
    place = Directory("s3://lake/shop/orders", storage)
    with pytest.raises(StoreError) as caught, reached(place):
        raise OSError(f"AWS error with {CANARY}\nand another line")
    assert str(caught.value) == (
        "files cannot be written or read in s3://lake/shop/orders: AWS error with ***"
    )
    with pytest.raises(OSError, match="disk"), reached(Directory("/local", storage)):
        raise OSError("no space left on the disk")
    with pytest.raises(FileNotFoundError), reached(place):
        raise FileNotFoundError("gone")


def test_calls_of_a_rest_catalog_have_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """`_session` is a private name of pyiceberg, which has no setting for this."""
    asked: list[object] = []

    def request(_: requests.Session, method: str, url: str, **more: object) -> requests.Response:
        asked.append((method, url, more.get("timeout")))
        answer = requests.Response()
        answer.status_code, answer._content = 200, b'{"defaults": {}, "overrides": {}}'
        return answer

    monkeypatch.setattr(requests.Session, "request", request)
    catalog = open_catalog(REST)
    assert isinstance(catalog, RestCatalog)
    catalog._session.get("https://catalog.example/x")
    assert asked[-1] == ("GET", "https://catalog.example/x", (5.0, 60.0))


def test_handed_out_keys_are_renewed_before_they_expire() -> None:
    end = {"s3.session-token-expires-at-ms": "1000000", "s3.region": "x"}
    assert not has_expired({"s3.access-key-id": "x"}, 2_000_000)
    assert not has_expired(end, 939_000)
    assert has_expired(end, 941_000)
    assert has_expired({"adls.sas-token-expires-at-ms.lake": "1000"}, 2_000)
    assert not has_expired({"gcs.oauth2.token-expires-at": "soon"}, 2_000)


def test_a_delta_table_by_path_needs_no_catalog() -> None:
    found = definition({}, "delta", path="s3://lake/by path/orders/").table
    assert found.path == "s3://lake/by path/orders"
    assert found.name == "shop.orders"
    with pytest.raises(DefinitionError, match=r"table\.path.*catalog of an Iceberg table"):
        definition(REST, path="s3://lake/orders")
    with pytest.raises(DefinitionError, match="line break"):
        definition({}, "delta", path="s3://lake/or\nders")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("conditional_put", "disabled"),
        ("AWS_CONDITIONAL_PUT", "disabled"),
        ("AWS_S3_ALLOW_UNSAFE_RENAME", "true"),
        ("allow_unsafe_rename", "TRUE"),
    ],
)
def test_commits_that_are_not_conditional_are_refused(name: str, value: str) -> None:
    base = {"warehouse": "s3://lake/warehouse"}
    with pytest.raises(DefinitionError, match="two writers at once would lose rows"):
        definition({**base, name: value}, "delta")
    definition({**base, "conditional_put": "etag"}, "delta")


def test_stores_without_a_file_system_of_arrow_are_written_by_deltalake(tmp_path: Path) -> None:
    handler = _Handler(f"file://{tmp_path}", {})
    rows = pa.table({"id": list(range(1_000))})
    place = fs.PyFileSystem(handler)
    with place.open_output_stream("day=1/rows.parquet") as sink:
        pq.write_table(rows, sink)
    assert pq.read_table("day=1/rows.parquet", filesystem=place).select(["id"]).equals(rows)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("header.Authorization", "Bearer realsecret123"),
        ("gcp.bigquery.credentials-info", "{private_key}"),
        ("uri", "https://catalog.example/x?password=hunter22"),
        ("token", "realtoken${env:EMPTY}"),
        ("credential", "id:realsecret"),
        ("AWS_SSE_CUSTOMER_KEY_BASE64", "a2V5"),
    ],
)
def test_more_forms_of_plain_secrets_are_refused(name: str, value: str) -> None:
    with pytest.raises(DefinitionError, match="in plain text"):
        definition({**REST, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("header.Authorization", "Bearer ${file:/run/secrets/token}"),
        ("header.X-Iceberg-Access-Delegation", "vended-credentials"),
        ("credential", "client-1:${env:SECRET}"),
        ("adls.connection-string", "AccountName=a;AccountKey=${env:KEY};EndpointSuffix=x"),
        ("uri", "https://catalog.example/x?password=${env:P}"),
    ],
)
def test_references_within_a_text_are_accepted(name: str, value: str) -> None:
    assert dict(definition({**REST, name: value}).table.catalog)[name] == value


def test_a_password_may_have_the_signs_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "p@ss/w0rd")
    options = {"uri": "postgresql://penstock:${env:DB_PASSWORD}@db/catalog"}
    assert resolved(options)["uri"] == "postgresql://penstock:p%40ss%2Fw0rd@db/catalog"
    assert "w0rd" not in hidden("cannot reach p%40ss%2Fw0rd@db, p@ss/w0rd", options)


def test_a_pipe_is_no_secret_and_no_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (str(tmp_path / "pipe"), f"{tmp_path}/nul\0"):
        with pytest.raises(SecretError, match="cannot be read"):
            resolved({"token": f"${{file:{place}}}"})
