"""The storage of a Delta table's files, by the options of `deltalake` in the definition.

Tasks write the files with the same options as the log. On S3, Arrow's own file system writes them:
the options are translated. Other object stores are written by `deltalake`'s file system, which is
Python, called by Arrow. A local folder uses neither: Arrow writes there, and syncs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from penstock.spark.tables.definition.locations import split
from penstock.spark.tables.formats.secrets import hidden, resolved

PATIENCE: Final[Mapping[str, str]] = {
    "max_retries": "6",
    "retry_timeout": "30s",
    "connect_timeout": "5s",
}
"""Limits of `deltalake`'s retries, which end after 3 minutes otherwise; the user's options win."""
S3_SCHEMES: Final = frozenset({"s3", "s3a"})
_S3_NAMES: Final[Mapping[str, Sequence[str]]] = {
    "access_key": ("access_key_id",),
    "secret_key": ("secret_access_key",),
    "session_token": ("session_token", "token"),
    "region": ("region", "default_region"),
    "endpoint_override": ("endpoint_url", "endpoint"),
    "role_arn": ("iam_role_arn", "role_arn"),
    "session_name": ("iam_role_session_name", "role_session_name"),
}
"""Arrow's arguments, and the options of `deltalake`, which may begin with `aws_`."""


def store_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options for `deltalake`, with secrets: do not keep them."""
    return {**PATIENCE, **resolved(options)}


def s3_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of Arrow's file system on S3 for the options of `deltalake`."""
    given = {name.lower().removeprefix("aws_"): value for name, value in options.items()}
    found: dict[str, Any] = {
        "connect_timeout": 5,
        "request_timeout": 60,
        "retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=3),
    }
    for argument, names in _S3_NAMES.items():
        value = next((given[name] for name in names if name in given), None)
        if value is not None:
            found[argument] = value
    if given.get("virtual_hosted_style_request", "").lower() == "true":
        found["force_virtual_addressing"] = True
    if given.get("skip_signature", "").lower() == "true":
        found["anonymous"] = True
    return found


@dataclass(frozen=True, slots=True)
class DeltaStorage:
    """The storage, by options with references."""

    options: tuple[tuple[str, str], ...]

    def open(self, directory: str) -> tuple[fs.FileSystem, str]:
        """Return the file system with the credentials of now, and the directory's path in it."""
        scheme, rest = split(directory)
        if scheme in S3_SCHEMES:
            arguments = s3_arguments(resolved(dict(self.options)))
            return fs.S3FileSystem(**arguments), rest.rstrip("/")
        handler = _Handler(str(directory), store_options(dict(self.options)))
        return fs.PyFileSystem(handler), ""

    def hide(self, text: str) -> str:
        """Return a library's text without the secrets of this storage."""
        return hidden(text, dict(self.options))


class _Handler(DeltaStorageHandler):
    """`deltalake`'s file system, whose files take the buffers of Arrow's Parquet writer."""

    def open_output_stream(
        self, path: str, metadata: dict[str, str] | None = None
    ) -> pa.PythonFile:
        """Open a new file."""
        file = self._handler.open_output_stream(path, metadata)
        return pa.PythonFile(_Output(file), mode="w")  # type: ignore[arg-type]  # it has `close`


class _Sink(Protocol):
    """A file of `deltalake`, which accepts only bytes."""

    def write(self, data: bytes) -> int: ...

    def tell(self) -> int: ...

    def close(self) -> None: ...


class _Output:
    """The same file, which accepts buffers."""

    def __init__(self, file: _Sink) -> None:
        self._file = file
        self.closed = False

    def write(self, data: bytes | pa.Buffer) -> int:
        """Write bytes or a buffer."""
        return int(self._file.write(bytes(data)))

    def tell(self) -> int:
        """Return the number of written bytes."""
        return int(self._file.tell())

    def flush(self) -> None:
        """Do nothing: the upload ends with `close`."""

    def close(self) -> None:
        """Finish the upload."""
        self.closed = True
        self._file.close()
