"""The options of a catalog and its storage in a definition (pure).

Options have the names of the library of the format, unchanged: those of `pyiceberg` (`s3.endpoint`)
for Iceberg, those of `deltalake` (`AWS_ENDPOINT_URL`) for Delta.

Guarantees: a returned catalog has no secret. An option that is one is a reference, `${env:NAME}` or
`${file:PATH}`, which the process that needs it resolves (`formats.secrets`). So a definition can be
shown, pickled and sent to tasks.
"""

import re
from collections.abc import Mapping
from typing import Final

from penstock.spark.tables.definition.locations import problem_of
from penstock.spark.tables.definition.model import TableFormat
from penstock.spark.tables.definition.values import Section, did_you_mean

EXAMPLES: Final[Mapping[TableFormat, str]] = {
    TableFormat.ICEBERG: '{ type = "sql", uri = "sqlite:////data/catalog.db", '
    'warehouse = "file:///data/warehouse" }',
    TableFormat.DELTA: '{ warehouse = "/data/warehouse" }',
}
REFERENCE: Final = re.compile(r"\$\{(env|file):([^}]+)\}")
_SECRET: Final = re.compile(
    r"secret|password|passphrase|connection[-_.]string|(^|[-_.])sas([-_.]|$)"
    r"|(token|credential|(access|account|master)[-_.]?key)$"
    r"|credentials[-_.]?info|customer[-_.]?key"
    r"|^header\.((proxy-)?authorization|cookie|(x-)?api-?key)$",
    re.IGNORECASE,
)
_UNCONDITIONAL: Final[Mapping[str, str]] = {
    "conditional_put": "disabled",
    "s3_allow_unsafe_rename": "true",
    "allow_unsafe_rename": "true",
}
IN_QUERY: Final = re.compile(
    r"[?&][^=&]*(?:password|token|secret|sig|api[-_]?key)[^=&]*=(?P<password>[^&#]+)", re.IGNORECASE
)
_BESIDE: Final = re.compile(r"(?:Bearer |Basic |[^:$]*:)?")
"""The plain text that may be before a reference: a scheme, or the id of a client's credential."""
PASSWORD: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/@:]*:(?P<password>[^@]+)@", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Return whether the value of this option is a secret."""
    return _SECRET.search(name) is not None


def read_catalog(
    section: Section, format_: TableFormat, *, has_path: bool
) -> tuple[tuple[str, str], ...]:
    """Return the options of `table.catalog`; with a path, a Delta table needs none."""
    example = EXAMPLES[format_]
    catalog = section.properties("catalog", example)
    names = {name for name, _ in catalog}
    if not names and not has_path:
        section.fail("catalog", "it is missing.", f"Write catalog = {example}.")
    wanted = "warehouse" if format_ is TableFormat.DELTA else "type"
    if wanted not in names and not has_path:
        meant = did_you_mean(wanted, names, "Did you mean it by '{}'? ")
        section.fail(
            f"catalog.{wanted}",
            f"a table of format {format_.value} needs it.",
            f"{meant}Write catalog = {example}.",
        )
    found = problem_of(dict(catalog).get("warehouse", ""), format_)
    if found is not None:
        section.fail("catalog.warehouse", *found)
    for name, value in catalog:
        _require_no_secret(section, name, value)
        _require_conditional(section, name, value)
    return catalog


def read_path(section: Section, format_: TableFormat) -> str:
    """Return the location of a Delta table that is not named after its table; "" for the others."""
    path = section.optional_text("path", '"s3://lake/shop/orders"')
    if path is None:
        return ""
    if format_ is not TableFormat.DELTA:
        section.fail(
            "path",
            "the catalog of an Iceberg table decides its location.",
            "Remove it, and name the table by name and catalog.",
        )
    found = problem_of(path, format_)
    if found is not None:
        section.fail("path", *found)
    return path.rstrip("/")


def _require_conditional(section: Section, name: str, value: str) -> None:
    """Refuse options of `deltalake` without which two writers cannot both be right."""
    if _UNCONDITIONAL.get(name.lower().removeprefix("aws_")) == value.strip().lower():
        section.fail(
            f"catalog.{name}",
            "commits would not be conditional, and two writers at once would lose rows.",
            "Remove it. A store without conditional writes cannot hold a Delta table: use an "
            "Iceberg table, whose commits are in its catalog.",
        )


def _is_reference(name: str, written: str) -> bool:
    """Return whether the secret itself is a reference."""
    if "connection" in name.lower():
        return REFERENCE.search(written) is not None  # other parts of it are no secrets
    rest = REFERENCE.sub("", written)
    return rest != written and _BESIDE.fullmatch(rest) is not None


def _require_no_secret(section: Section, name: str, value: str) -> None:
    found = PASSWORD.match(value) or IN_QUERY.search(value)
    written = found["password"] if found else value if is_secret(name) else ""
    if not written or _is_reference(name, written):
        return
    what = "it has a password" if found else "it is a secret"
    section.fail(
        f"catalog.{name}",
        f"{what} in plain text, and a definition is copied, shown and sent to tasks.",
        'Write "${env:NAME}" for an environment variable or "${file:/run/secrets/name}" for a '
        "file, in the place of the secret.",
    )
