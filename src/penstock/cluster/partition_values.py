"""The value of a partition's state: JSON in UTF-8, version 2; version 1 is read too.

It is apart from the other `values`, because a load reads one for each partition of the cluster, and
most differ once leaders have changed. A value as `write_partition` writes it, with its order of
fields and without spaces, is taken apart by one regular expression, in half the time of a JSON
parser; any other value is parsed as JSON. Reading a written value returns an equal state.

Version 1 had no broker epochs: its in-sync replicas get epoch 0, which is never valid. The next
write of the state is version 2.
"""

import json
import re
from functools import lru_cache
from typing import Final

from penstock.cluster.image import PartitionImage, Replica, WriteMark
from penstock.core.errors import StoreError

VERSION: Final = 2

_CACHED: Final = 1024
"""Distinct states that a load decodes once: after a creation, all partitions share few states."""


_NUMBER: Final = rb"(?:0|-?[1-9][0-9]*)"
_NUMBERS: Final = rb"\[((?:" + _NUMBER + rb"(?:,(?!\])|(?=\])))*)\]"
_PAIR: Final = rb"\[" + _NUMBER + b"," + _NUMBER + rb"\]"
_PAIRS: Final = rb"\[((?:" + _PAIR + rb"(?:,(?!\])|(?=\])))*)\]"
_WRITTEN: Final = re.compile(
    rb'{"v":2,"replicas":'
    + _NUMBERS
    + rb',"adding":'
    + _NUMBERS
    + rb',"removing":'
    + _NUMBERS
    + rb',"leader":('
    + _NUMBER
    + rb'),"bepoch":('
    + _NUMBER
    + rb'),"epoch":('
    + _NUMBER
    + rb'),"isr":'
    + _PAIRS
    + rb',"elr":'
    + _PAIRS
    + rb',"min_isr":('
    + _NUMBER
    + rb'),"recovering":(true|false),"by":(?:null|'
    + _NUMBERS
    + rb")}"
)
"""A value of version 2 as it is written here."""


def write_partition(partition: PartitionImage) -> bytes:
    """Encode the state of a partition without its epoch, which is the revision of the write."""
    fields = {
        "v": VERSION,
        "replicas": partition.replicas,
        "adding": partition.adding,
        "removing": partition.removing,
        "leader": partition.leader,
        "bepoch": partition.broker_epoch,
        "epoch": partition.leader_epoch,
        "isr": partition.in_sync,
        "elr": partition.elr,
        "min_isr": partition.min_isr,
        "recovering": partition.is_recovering,
        "by": partition.written_by,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def read_partition(value: bytes, revision: int) -> PartitionImage:
    """Return the state of one partition that was written at `revision`."""
    found = _read(value)
    return PartitionImage._make((*found[:4], revision, *found[5:]))


@lru_cache(maxsize=_CACHED)
def _read(value: bytes) -> PartitionImage:
    """Return the state with partition epoch 0."""
    written = _WRITTEN.fullmatch(value)
    if written is not None:
        return _taken_apart(written)
    try:
        fields = json.loads(value)
        version = fields["v"]
        if version == VERSION:
            return _version_2(fields)
        if version == 1:
            return _version_1(fields)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"a partition in the metadata store is damaged: {error!r}") from error
    if not isinstance(version, int) or version < 1:
        raise StoreError(f"a partition in the metadata store has the version {version!r}")
    raise StoreError(
        f"a partition in the metadata store has version {version}, this version of Penstock reads "
        f"{VERSION}: it needs a newer Penstock"
    )


def _taken_apart(written: re.Match[bytes]) -> PartitionImage:
    parts = written.groups()
    replicas, adding, removing, leader, bepoch, epoch, isr, elr, min_isr, recovering, by = parts
    in_sync = _split(isr.translate(None, b"[]"))
    eligible = _split(elr.translate(None, b"[]"))
    if by is not None and by.count(b",") != len(WriteMark._fields) - 1:
        raise StoreError("a partition in the metadata store is damaged: its writer is unknown")
    return PartitionImage(
        _split(replicas),
        int(leader),
        int(epoch),
        in_sync[::2],
        0,
        int(bepoch),
        in_sync[1::2],
        tuple(map(Replica, eligible[::2], eligible[1::2])),
        int(min_isr),
        _split(adding),
        _split(removing),
        recovering == b"true",
        None if by is None else WriteMark(*_split(by)),
    )


def _split(numbers: bytes) -> tuple[int, ...]:
    return tuple(map(int, numbers.split(b","))) if numbers else ()


def _version_2(fields: dict[str, object]) -> PartitionImage:
    in_sync = _entries(fields["isr"])
    by = fields["by"]
    is_recovering = fields["recovering"]
    if not isinstance(is_recovering, bool):
        raise TypeError("recovering is not a truth value")
    return PartitionImage(
        _numbers(fields["replicas"]),
        _number(fields["leader"]),
        _number(fields["epoch"]),
        tuple([one.broker_id for one in in_sync]),
        0,
        broker_epoch=_number(fields["bepoch"]),
        isr_epochs=tuple([one.epoch for one in in_sync]),
        elr=_entries(fields["elr"]),
        min_isr=_number(fields["min_isr"]),
        adding=_numbers(fields["adding"]),
        removing=_numbers(fields["removing"]),
        is_recovering=is_recovering,
        written_by=None if by is None else WriteMark(*_numbers(by)),
    )


def _version_1(fields: dict[str, object]) -> PartitionImage:
    isr = _numbers(fields["isr"])
    return PartitionImage(
        _numbers(fields["replicas"]),
        _number(fields["leader"]),
        _number(fields["leader_epoch"]),
        isr,
        0,
        isr_epochs=(0,) * len(isr),
    )


def _number(value: object) -> int:
    # `type`, because a bool is an int.
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a number")
    return value


def _numbers(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list of numbers")
    for one in value:
        if type(one) is not int:
            raise TypeError(f"{one!r} is not a number")
    return tuple(value)


def _entries(value: object) -> tuple[Replica, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list of replicas")
    found = []
    for one in value:
        broker_id, epoch = one
        if type(broker_id) is not int or type(epoch) is not int:
            raise TypeError(f"{one!r} is not a broker id with its epoch")
        found.append(Replica(broker_id, epoch))
    return tuple(found)
