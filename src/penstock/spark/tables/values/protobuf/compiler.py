"""Compiles .proto files to descriptors, by the protoc of grpcio-tools, in a separate process.

Guarantees: at most `FILES_MAX` files of `FILE_CHARACTERS_MAX` are compiled, in a folder that is
removed, within `TIMEOUT_S`; an error of the compiler is a `SchemaError` with its text. A file can
import the other passed files and Google's well-known ones, and no other file of the disk.
"""

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.errors import SchemaError

FILES_MAX: Final = 200
FILE_CHARACTERS_MAX: Final = 4_194_304
TIMEOUT_S: Final = 60


def compile_proto(texts: Mapping[str, str], main: str, what: str) -> FileDescriptorSet:
    """Return the descriptors of the file `main` and its imports; `texts` has each file by name."""
    if find_spec("grpc_tools") is None:
        raise SchemaError(
            what, "protoc is not installed.", "Install it with: pip install 'penstock[protobuf]'."
        )
    if len(texts) > FILES_MAX:
        raise SchemaError(what, f"it has {len(texts)} files.", f"At most {FILES_MAX} are read.")
    with tempfile.TemporaryDirectory(prefix="penstock-proto-") as folder:
        for name, text in texts.items():
            _write(Path(folder), name, text, what)
        return _compiled(Path(folder), main, what)


def _write(folder: Path, name: str, text: str, what: str) -> None:
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts or not name.strip() or "\0" in name:
        raise SchemaError(what, f"{shown(name)} cannot be a file's name.", "Import it by another.")
    if len(text) > FILE_CHARACTERS_MAX:
        raise SchemaError(
            what, f"{shown(name)} is too long.", f"At most {FILE_CHARACTERS_MAX} are read."
        )
    path = folder / parts
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _compiled(folder: Path, main: str, what: str) -> FileDescriptorSet:
    result = folder / "compiled.descriptors"
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"--proto_path={folder}",
        f"--proto_path={files('grpc_tools') / '_proto'}",
        "--include_imports",
        f"--descriptor_set_out={result}",
        main,
    ]
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter; the names were checked
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise SchemaError(
            what, f"protoc did not end within {TIMEOUT_S} s.", "Make it simpler."
        ) from None
    if done.returncode or not result.exists():
        output = done.stderr.strip().replace(f"{folder}/", "")[:1_000]
        raise SchemaError(what, f"protoc says: {output}.", "Correct the file.")
    return FileDescriptorSet.FromString(result.read_bytes())
