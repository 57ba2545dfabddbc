"""Deleted keys that a sequenced table remembers, so that no older change restores them.

A row of the table has its order; a deleted row has none. So the keys of deletions are kept with
their order in a file beside the table, and the note of the commit names the file. Both change in
one commit: a driver that crashes before it leaves an unreferenced file, and a table that is rolled
back has its old file again. Each pipeline of a table has its own file, and a commit reads all.

Guarantees: a change is compared with every remembered deletion. A file is never changed; a new one
is written for a new deletion, or for a row of a remembered key. The `KEYS_MAX` newest deletions are
remembered: an older change of a key that was deleted before them adds a row again.

Files end in `.arrow`, in a folder with an underscore: readers of tables and removers of orphans
leave both alone. Unreferenced files are deleted here, after `KEPT_MS`.
"""

import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import feather, fs

from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.files.data_files import open_directory, sync_file
from penstock.spark.tables.files.storages import below
from penstock.spark.tables.files.upsert import DELETED, newest_of_each, rows_among
from penstock.spark.tables.values.cdc.sequence import SEQUENCE

FOLDER: Final = "_deleted_keys"
KEYS_MAX: Final = 200_000
"""Some megabytes, which every commit with a deletion writes again."""
KEPT_MS: Final = 30 * 86_400_000
"""How long a file is kept that no note references, for a table that is rolled back."""
REMOVED_MAX: Final = 1_000
"""The maximum number of deleted files in one step."""


class DeletedKeysLostError(SparkQueryError):
    """The file of deleted keys that a note names is gone."""


def deleted_keys_folder(changes_directory: str) -> str:
    """Return the folder of the files, from the folder of changes of the same table."""
    return below(changes_directory, FOLDER)


def remembered_after(held: pa.Table | None, last: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the deleted keys after these last changes; `last` has key, order and kind.

    A key that has a row again is forgotten: its row has a greater order.
    """
    names = list(key)
    is_deleted = last[DELETED]
    gone = last.filter(is_deleted).select([*names, SEQUENCE])
    if held is None:
        return _newest(gone)
    come = last.filter(pc.invert(is_deleted)).select(names)
    known = held.cast(gone.schema)
    back = rows_among(known, come) if come.num_rows else pa.array([], pa.int64())
    if len(back):
        every = pa.arange(0, known.num_rows)
        known = known.filter(pc.invert(pc.is_in(every, value_set=back)))
    return _newest(newest_of_each(pa.concat_tables([known, gone]), names))


def together(tables: Iterable[pa.Table], key: Sequence[str]) -> pa.Table | None:
    """Return the deleted keys of several files, each with its newest deletion; None without one."""
    parts = list(tables)
    if len(parts) <= 1:
        return parts[0] if parts else None
    joined = pa.concat_tables(parts, promote_options="permissive")
    return newest_of_each(joined, list(key))


def _newest(keys: pa.Table) -> pa.Table:
    if keys.num_rows <= KEYS_MAX:
        return keys
    order = pc.sort_indices(keys, [(SEQUENCE, "descending")])
    return keys.take(order.slice(0, KEYS_MAX)).combine_chunks()


def write_keys(folder: str, keys: pa.Table) -> str:
    """Write a new file; return its name."""
    filesystem, root = open_directory(folder)
    name = f"{uuid4().hex}.arrow"
    is_local = isinstance(filesystem, fs.LocalFileSystem)
    if is_local:
        os.makedirs(root, exist_ok=True)
    with filesystem.open_output_stream(f"{root}/{name}") as sink:
        feather.write_feather(keys, sink, compression="zstd")
    if is_local:
        sync_file(f"{root}/{name}")
    return name


def read_keys(folder: str, name: str) -> pa.Table:
    """Return the keys in a file."""
    filesystem, root = open_directory(folder)
    try:
        with filesystem.open_input_file(f"{root}/{name}") as source:
            return feather.read_table(source)
    except FileNotFoundError:
        raise DeletedKeysLostError(
            f"the table's file of deleted keys is gone: {folder}/{name}. Without it an older "
            "change could restore a deleted row. Restore the file. Or let the table forget the "
            "pipeline (penstock table forget) and start it under a new name, if no older change "
            "can arrive."
        ) from None


def remove_unreferenced(folder: str, referred: Collection[str], now_ms: int) -> int:
    """Delete old files that no note references; return their number."""
    filesystem, root = open_directory(folder)
    found = [
        one
        for one in filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True))
        if one.base_name.endswith(".arrow") and one.mtime_ns is not None
    ]
    found.sort(key=lambda one: one.mtime_ns)
    removed = 0
    # A file lost its last reference when the next one was written, not when it was written itself.
    for one, following in pairwise(found):
        is_old = following.mtime_ns // 1_000_000 < now_ms - KEPT_MS
        if not is_old or removed >= REMOVED_MAX:
            break
        if one.base_name not in referred:
            with suppress(FileNotFoundError):
                filesystem.delete_file(one.path)
                removed += 1
    return removed
