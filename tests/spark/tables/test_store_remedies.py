"""Errors of catalogs and stores end with a remedy; the texts are those of real servers."""

import pytest
from pyiceberg.exceptions import BadRequestError, ForbiddenError, OAuthError, UnauthorizedError

from penstock.spark.tables.definition.model import TableFormat, TableSettings
from penstock.spark.tables.files.store_remedies import with_remedy
from penstock.spark.tables.formats.catalog_problems import catalog_error

ARROW = "When initiating multiple part upload for key 'x' in bucket 'lake': AWS Error {} during"
CATALOG = (("type", "rest"), ("uri", "https://catalog.example"))


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (ARROW.format("SIGNATURE_DOES_NOT_MATCH"), "Correct the secret key of the store"),
        (ARROW.format("INVALID_ACCESS_KEY_ID"), "Correct the access key of the store"),
        (ARROW.format("ACCESS_DENIED"), "Let the keys of table.catalog read, write, list"),
        (ARROW.format("NO_SUCH_BUCKET"), "Create the bucket, or correct the warehouse."),
        (ARROW.format("NETWORK_CONNECTION"), "Start the store, or correct its endpoint"),
        (ARROW.format("UNKNOWN (HTTP status 301)"), "Correct the region of the store"),
        ("Generic S3 error: <Code>InvalidAccessKeyId</Code>", "Correct the access key of"),
    ],
)
def test_a_known_reason_has_its_remedy(text: str, remedy: str) -> None:
    found = with_remedy(text)
    assert found.startswith(f"{text}. ")
    assert remedy in found


def test_an_unknown_reason_stays() -> None:
    text = "curlCode: 7, Couldn't connect to server"
    assert with_remedy(text) == text


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (UnauthorizedError("Not authorized"), "refuses the login: correct table.catalog.token"),
        (ForbiddenError("Not authorized"), "refuses the login: correct table.catalog.token"),
        (OAuthError("invalid_client"), "refuses the login: correct table.catalog.token"),
        (BadRequestError("No route"), "correct its path or table.catalog.warehouse"),
        (ConnectionRefusedError("refused"), "Start it, or correct it."),
    ],
)
def test_a_catalog_that_answers_is_not_to_be_started(error: Exception, remedy: str) -> None:
    settings = TableSettings(TableFormat.ICEBERG, "shop.orders", CATALOG)
    assert remedy in str(catalog_error(settings, error))
