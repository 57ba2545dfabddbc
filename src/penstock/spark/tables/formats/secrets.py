"""Secrets of a catalog or a storage: `definition.references` for the keys of `table.catalog`.

catalog = { "s3.secret-access-key" = "${env:LAKE_SECRET}", token = "${file:/run/token}" }
"""

from functools import partial
from typing import Final

from penstock.spark.tables.definition import references

_SECTION: Final = "table.catalog"
resolved = partial(references.resolved, _SECTION)
version_of = partial(references.version_of, _SECTION)
hidden = references.hidden
keep_hidden = references.keep_hidden
SecretError = references.SecretError
SecretFileError = references.SecretFileError
