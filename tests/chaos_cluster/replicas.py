"""The files of all replicas, compared batch by batch. Brokers are stopped when this reads them.

Guarantees: every batch of every replica has a right checksum, and from the highest log start on all
replicas of a partition have the same batches, byte for byte, up to the same end. Segments may begin
at different offsets: each replica rolls its own.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from penstock.core.errors import PenstockError
from penstock.records.batch import checksum_matches, read_header
from tests.oracle.log_dump import Dump, dump_log

DIFFERENCES_MAX = 20


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result for all partitions."""

    partitions: int
    batches: int
    """Of one replica of each partition."""
    differences: list[str]


def partition_folders(data_dir: Path) -> Iterator[Path]:
    """The folders of partitions in a data directory."""
    for folder in sorted(data_dir.iterdir()):
        name, _, number = folder.name.rpartition("-")
        if folder.is_dir() and name and number.isdigit():
            yield folder


def compare_replicas(data_dirs: Mapping[int, Path], replicas: int) -> Comparison:
    """Compare the replicas of all partitions; each must have the given number of replicas."""
    found: dict[str, dict[int, list[tuple[int, bytes]]]] = collections.defaultdict(dict)
    differences: list[str] = []
    for broker, data_dir in data_dirs.items():
        for folder in partition_folders(data_dir):
            place = f"{folder.name} of broker {broker}"
            found[folder.name][broker] = list(_batches(folder, place, differences))
    batches = 0
    for name, logs in sorted(found.items()):
        if len(logs) != replicas:
            differences.append(f"{name}: replicas on {sorted(logs)}, {replicas} expected")
        batches += max(map(len, logs.values()))
        differences += _differences(name, logs)
    return Comparison(len(found), batches, differences[:DIFFERENCES_MAX])


def _batches(folder: Path, place: str, complaints: list[str]) -> Iterable[tuple[int, bytes]]:
    next_offset = -1
    for segment in sorted(folder.glob("*.log")):
        data = segment.read_bytes()
        position = 0
        # Zeros behind the last batch are room, which a stop that was too late leaves.
        while position < len(data) and any(data[position:]):
            try:
                header = read_header(data, position)
            except PenstockError as error:
                complaints.append(f"{place}: {segment.name} at byte {position}: {error}")
                return
            end = position + header.size_bytes
            if end > len(data) or not checksum_matches(data, position, header):
                complaints.append(f"{place}: the batch at {header.base_offset} has a bad checksum")
                return
            if header.base_offset < next_offset:
                complaints.append(f"{place}: {header.base_offset} follows {next_offset}")
            next_offset = header.next_offset
            yield header.base_offset, data[position:end]
            position = end


def _differences(name: str, logs: Mapping[int, list[tuple[int, bytes]]]) -> Iterator[str]:
    start = max((log[0][0] for log in logs.values() if log), default=0)
    wholes = {broker: [batch for batch in log if batch[0] >= start] for broker, log in logs.items()}
    first, *others = sorted(wholes)
    for other in others:
        pairs = zip(wholes[first], wholes[other], strict=False)
        unequal = next((a[0] for a, b in pairs if a != b), None)
        if unequal is not None:
            yield f"{name}: brokers {first} and {other} differ at offset {unequal}"
        elif len(wholes[first]) != len(wholes[other]):
            yield (
                f"{name}: broker {first} has {len(wholes[first])} batches, "
                f"broker {other} has {len(wholes[other])}"
            )


def compare_by_kafka(data_dirs: Mapping[int, Path], topic: str) -> list[str]:
    """Differences and complaints of Kafka's own DumpLogSegments, for one topic of all brokers."""
    differences: list[str] = []
    dumps: dict[str, dict[int, Dump]] = collections.defaultdict(dict)
    for broker, data_dir in data_dirs.items():
        for folder in partition_folders(data_dir):
            if folder.name.rpartition("-")[0] == topic:
                dump = dumps[folder.name][broker] = dump_log(folder)
                place = f"{folder.name} of broker {broker}"
                differences += [f"{place}: {text}" for text in dump.complaints]
    for name, by_broker in dumps.items():
        first = min(by_broker)
        differences += [
            f"{name}: DumpLogSegments differs for brokers {first} and {broker}"
            for broker, dump in by_broker.items()
            if (dump.batches, dump.records) != (by_broker[first].batches, by_broker[first].records)
        ]
    if not any(dump.batches for by_broker in dumps.values() for dump in by_broker.values()):
        differences.append(f"{topic}: DumpLogSegments printed no batch")
    return differences[:DIFFERENCES_MAX]
