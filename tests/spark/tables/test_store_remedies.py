"""Errors of catalogs and stores end with a remedy; the texts are those of real servers."""

import pytest
from pyiceberg.exceptions import BadRequestError, ForbiddenError, OAuthError, UnauthorizedError

from penstock.spark.tables.definition.model import TableFormat, TableSettings
from penstock.spark.tables.files.storages import StoreError, reached
from penstock.spark.tables.files.store_remedies import with_remedy
from penstock.spark.tables.formats.catalog_problems import catalog_error, reason_of

OPERATION = "during CreateMultipartUpload operation: "
ARROW = (
    "When initiating multiple part upload for key 'x' in bucket 'lake': AWS Error {} "
    f"{OPERATION}Some words"
)
GET = "Error performing GET https://store/lake/{}/_delta_log in 2ms - "
REDIRECT = (
    f"Generic S3 error: {GET.format('x')}Received redirect without LOCATION, this normally "
    "indicates an incorrectly configured region"
)
ALLOWED = "Let the keys of table.catalog read, write, list and delete objects there."
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
        (
            ARROW.replace("Some words", "Unable to parse ExceptionName: ExpiredToken").format(
                "UNKNOWN (HTTP status 400)"
            ),
            "Renew the credentials of the store",
        ),
        (
            "An error occurred (ExpiredTokenException) when calling the GetTable operation: x",
            "Renew the credentials of the store",
        ),
        (
            "An error occurred (AuthorizationHeaderMalformed) when calling the GetObject operation",
            "Correct the region of the store",
        ),
        (
            "An error occurred (PermanentRedirect) when calling the GetObject operation: x",
            "Correct the region of the store",
        ),
        (
            'Could not connect to the endpoint URL: "http://127.0.0.1:1/lake/x"',
            "Start the store, or correct its endpoint",
        ),
        (
            f"Generic S3 error: {GET.format('x')}error sending request for url (http://h:1/x)",
            "Start the store, or correct its endpoint",
        ),
        (REDIRECT, "Correct the region of the store"),
    ],
)
def test_a_known_reason_has_its_remedy(text: str, remedy: str) -> None:
    found = with_remedy(text, OSError(text))
    assert found.startswith(f"{text}. ")
    assert remedy in found


def test_an_unknown_reason_stays() -> None:
    text = "curlCode: 7, Couldn't connect to server"
    assert with_remedy(text, OSError(text)) == text


NAMES = (
    "nosuchbucket",
    "access-denied",
    "expired_token",
    "Signature Does Not Match",
    "HTTP status 301",
    "network/connection",
    "AWS Error ACCESS_DENIED",
    f"AWS Error ACCESS_DENIED {OPERATION}",
    "<Code>NoSuchBucket</Code>",
    "an incorrectly configured region",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "error",
    [
        ARROW.replace("'x'", "'{}'", 1).replace("AWS Error {}", "AWS Error SLOW_DOWN"),
        ARROW.replace("'lake'", "'{}'").replace(
            "AWS Error {}", "AWS Error UNKNOWN (HTTP status 503)"
        ),
        f"Generic S3 error: {GET}503: <?xml?><Error><Code>SlowDown</Code><Key>k</Key></Error>",
    ],
)
def test_a_name_in_the_error_is_no_reason(name: str, error: str) -> None:
    text = error.format(name)
    assert with_remedy(text, OSError(text)) == text


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_is_no_reason(name: str) -> None:
    """`reached` writes the folder beside the error of the store."""
    with pytest.raises(StoreError) as caught, reached(f"s3://lake/{name}"):
        raise OSError("curlCode: 28, Timeout was reached")
    end = f"s3://lake/{name}: curlCode: 28, Timeout was reached"
    assert str(caught.value) == f"files cannot be written or read in {end}"


def test_a_code_behind_the_end_of_the_shown_text() -> None:
    """A long path moves the code of `deltalake` out of the text."""
    path = "folder/" * 60
    error = OSError(f"{GET.format(path)}403 Forbidden: <Error><Code>AccessDenied</Code></Error>\n")
    shown = f"the table cannot be read now: {reason_of(error)}"
    assert "AccessDenied" not in shown
    assert with_remedy(shown, error) == f"{shown}. {ALLOWED}"


def test_the_code_of_an_error_with_a_misleading_name() -> None:
    text = ARROW.replace("'x'", "'accessdenied/expiredtoken'").format("NO_SUCH_BUCKET")
    assert (
        with_remedy(text, OSError(text)) == f"{text}. Create the bucket, or correct the warehouse."
    )


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
