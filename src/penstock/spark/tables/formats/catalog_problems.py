"""The errors of a catalog or a warehouse, in one line with a remedy.

The libraries of the formats pass on the errors of their drivers: of a database, of HTTP, of Python.
Guarantees: every text names the key of the definition, has a reason of one line without secrets,
and a remedy. This module needs none of these libraries.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final
from urllib.parse import urlsplit

from penstock.spark.tables.definition.errors import DefinitionError, UnusableError
from penstock.spark.tables.definition.model import TableFormat, TableSettings
from penstock.spark.tables.formats.secrets import hidden

REASON_CHARACTERS_MAX: Final = 300
CATALOG_TYPES: Final = ("rest", "sql", "hive", "glue", "dynamodb", "bigquery", "in-memory")
"""The catalog types of pyiceberg."""
_LOGIN_ERRORS: Final = (
    "UnauthorizedError",
    "ForbiddenError",
    "AuthorizationExpiredError",
    "OAuthError",
)
_ANSWERS: Final = ("BadRequestError", "RESTError")
"""pyiceberg's names for answers of a REST catalog: of the login, and HTTP 400, 404 and 422."""
_ERRNO: Final = re.compile(r"\[Errno -?[0-9]+\] ([^'\")\]]+)")
_CAUSE: Final = "\N{DOWNWARDS ARROW WITH TIP RIGHTWARDS}"
_COLORS: Final = re.compile(r"\x1b\[[0-9;]*m")
_SQLITE: Final = re.compile(r"sqlite(?:\+\w+)?:///(?P<path>[^?]+)")


class CatalogError(UnusableError):
    """The catalog or the storage of a table is not usable as defined."""


def catalog_error(settings: TableSettings, error: Exception) -> CatalogError | DefinitionError:
    """Return the reason why the catalog cannot be opened, from its library's error."""
    catalog = dict(settings.catalog)
    reason = hidden(reason_of(error), catalog)
    if settings.format is TableFormat.DELTA:
        return CatalogError(
            "",
            "table.path" if settings.path else "table.catalog.warehouse",
            f"{settings.path or catalog['warehouse']} cannot be used: {reason}.",
            "Correct it, or the other storage options in table.catalog.",
        )
    if type(error).__name__ == "NotInstalledError":
        return CatalogError(
            "",
            "table.catalog",
            f"a catalog of type {catalog.get('type')} needs a package that is not installed "
            f"({reason}).",
            "For SQLite: pip install 'penstock[spark,iceberg]'.",
        )
    if catalog.get("type") not in CATALOG_TYPES and "py-catalog-impl" not in catalog:
        return _unknown_type(str(catalog.get("type")))
    uri = catalog.get("uri")
    if uri is None:
        return CatalogError(
            "",
            "table.catalog",
            f"the catalog of type {catalog.get('type')} cannot be opened: {reason}.",
            "Write table.catalog.uri if it is missing, or correct table.catalog.",
        )
    remedy = "Start it, or correct it."
    if type(error).__name__ in _LOGIN_ERRORS:
        remedy = (
            "It answers and refuses the login: correct table.catalog.token or "
            "table.catalog.credential, or the variable or file that it names."
        )
    elif type(error).__name__ in _ANSWERS:
        remedy = "It answers: correct its path or table.catalog.warehouse."
    if sqlite_path(catalog) is not None:
        remedy = "Create the folder, or correct it."
    return CatalogError(
        "",
        "table.catalog.uri",
        f"the catalog {shown_uri(uri)} cannot be opened: {reason}.",
        remedy,
    )


def making_error(settings: TableSettings, name: str, error: Exception) -> CatalogError:
    """Return the reason why a table cannot be created, from its library's error."""
    reason = hidden(reason_of(error), dict(settings.catalog))
    return CatalogError(
        "",
        "table",
        f"the table '{name}' cannot be created: {reason}.",
        "Correct table.catalog, or let the user who runs the pipeline write there.",
    )


def no_warehouse(settings: TableSettings) -> DefinitionError | None:
    """Return the error for a catalog in a database without a `warehouse`: it stores no location."""
    catalog = dict(settings.catalog)
    if catalog.get("type") != "sql" or "warehouse" in catalog:
        return None
    return DefinitionError(
        "",
        "table.catalog.warehouse",
        "it is missing, and a catalog of type sql does not know the location for the files of a "
        "new table.",
        'Write catalog = { type = "sql", uri = …, warehouse = "file:///data/warehouse" }.',
    )


def sqlite_path(catalog: Mapping[str, str]) -> str | None:
    """Return the file of a SQLite catalog; None for any other catalog, or one in memory."""
    if catalog.get("type") != "sql":
        return None
    found = _SQLITE.fullmatch(catalog.get("uri", ""))
    return None if found is None or found["path"] == ":memory:" else found["path"]


def shown_uri(uri: str) -> str:
    """Return the address without a password."""
    parts = urlsplit(uri)
    if not parts.password:
        return uri
    return uri.replace(f":{parts.password}@", ":***@", 1)


def _unknown_type(found: str) -> DefinitionError:
    close = get_close_matches(found, CATALOG_TYPES, n=1, cutoff=0.6)
    meant = f"Did you mean '{close[0]}'? " if close else ""
    return DefinitionError(
        "",
        "table.catalog.type",
        f"there is no catalog of type '{found}'.",
        f"{meant}Set one of {', '.join(CATALOG_TYPES)}.",
    )


def reason_of(error: BaseException) -> str:
    """Return the reason, without the texts of the layers around it."""
    text = str(getattr(error, "orig", None) or error) or type(error).__name__
    number = _ERRNO.search(text)
    if number is not None:
        return number[1].strip()
    lines = _COLORS.sub("", text).splitlines()
    if any(_CAUSE in one for one in lines):  # of deltalake: each line is the cause of the last one
        lines = [": ".join(one.replace(_CAUSE, "").strip() for one in lines)]
    return lines[0].strip().rstrip(".")[:REASON_CHARACTERS_MAX]
