"""The output of Kafka's own DumpLogSegments for a partition's folder, parsed.

Guarantees: nothing here judges bytes; Kafka's tool does. A complaint of it (a batch that is not
valid, an index entry that does not fit the log, offsets or timestamps out of order) is in
`complaints`, and a file it cannot read at all is an `OracleError`.
"""

import dataclasses
import re
from pathlib import Path

from tests.oracle.kafka_jars import run_kafka_tool

TOOL = "org.apache.kafka.tools.DumpLogSegments"

_BATCH = re.compile(
    r"^baseOffset: (?P<base_offset>\d+) lastOffset: (?P<last_offset>\d+) count: (?P<count>\d+) "
    r"baseSequence: (?P<base_sequence>-?\d+) lastSequence: (?P<last_sequence>-?\d+) "
    r"producerId: (?P<producer_id>-?\d+) producerEpoch: (?P<producer_epoch>-?\d+) "
    r"partitionLeaderEpoch: (?P<leader_epoch>-?\d+) .* "
    r"compresscodec: (?P<codec>\w+) crc: \d+ isvalid: (?P<is_valid>\w+)$",
    re.MULTILINE,
)
_RECORD = re.compile(
    r"^\| offset: (?P<offset>\d+) \w+: -?\d+ keySize: -?\d+ valueSize: -?\d+ .*?"
    r"headerKeys: \[.*?\](?: key: (?P<key>.*?))?(?: payload: (?P<payload>.*))?$",
    re.MULTILINE,
)
_PRODUCER = re.compile(
    r"^producerId: (?P<producer_id>\d+) producerEpoch: (?P<epoch>\d+) .*? "
    r"lastSequence: (?P<last_sequence>\d+) lastOffset: (?P<last_offset>\d+) ",
    re.MULTILINE,
)
# The tool prints "-1 is followed by 320" for any segment whose first offset is not 0, Kafka's own
# too: that is not a complaint.
_COMPLAINT = re.compile(
    r"^.*(?:Mismatches in|(?<!-)\b\d+ is followed by \d+|Found timestamp mismatch"
    r"|out of order timestamp|isvalid: false|invalid bytes|corrupt|Exception).*$",
    re.MULTILINE | re.IGNORECASE,
)
_INDEX_ENTRY = re.compile(
    r"^(?:offset: \d+ position: \d+|timestamp: \d+ offset: \d+)$", re.MULTILINE
)

_ABORTED = re.compile(
    r"^version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) "
    r"lastStableOffset: (\d+)$",
    re.MULTILINE,
)


@dataclasses.dataclass(frozen=True)
class DumpedBatch:
    """The header of a batch."""

    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    codec: str


@dataclasses.dataclass(frozen=True)
class Dump:
    """All segments of one partition, in order."""

    batches: list[DumpedBatch]
    records: dict[int, tuple[str | None, str | None]]
    complaints: list[str]


@dataclasses.dataclass(frozen=True)
class DumpedProducer:
    """One producer of a snapshot."""

    epoch: int
    last_sequence: int
    last_offset: int


def _run(arguments: list[str], files: list[Path]) -> str:
    if not files:
        return ""
    return run_kafka_tool(TOOL, [*arguments, "--files", ",".join(str(file) for file in files)])


def segment_files(partition: Path, suffix: str) -> list[Path]:
    """The partition's files of one kind, by base offset."""
    return sorted(partition.glob(f"*.{suffix}"))


def dump_log(partition: Path) -> Dump:
    """Every batch and every record, decompressed (`--deep-iteration --print-data-log`)."""
    files = segment_files(partition, "log")
    printed = _run(["--deep-iteration", "--print-data-log"], files)
    batches = []
    for found in _BATCH.finditer(printed):
        fields = found.groupdict()
        codec = fields.pop("codec")
        fields.pop("is_valid")
        numbers = {name: int(value) for name, value in fields.items()}
        batches.append(DumpedBatch(codec=codec, **numbers))
    records = {
        int(found["offset"]): (found["key"], found["payload"])
        for found in _RECORD.finditer(printed)
    }
    return Dump(batches, records, _COMPLAINT.findall(printed))


@dataclasses.dataclass(frozen=True)
class IndexReport:
    """Kafka's findings in the offset and time indexes of a partition."""

    passed: set[str]
    entries: int
    complaints: list[str]


def check_indexes(partition: Path) -> IndexReport:
    """Kafka's sanity check of every index, then every entry held against the log."""
    files = segment_files(partition, "index") + segment_files(partition, "timeindex")
    sane = _run(["--index-sanity-check"], files)
    passed = {
        file.name
        for file in files
        if re.search(re.escape(str(file)) + r" (?:passed sanity check|is empty)\.", sane)
    }
    verified = _run([], files)
    entries = len(_INDEX_ENTRY.findall(verified))
    return IndexReport(passed, entries, _COMPLAINT.findall(sane + verified))


def dump_snapshot(file: Path) -> dict[int, DumpedProducer]:
    """The producers of one snapshot, by id."""
    return {
        int(found["producer_id"]): DumpedProducer(
            int(found["epoch"]), int(found["last_sequence"]), int(found["last_offset"])
        )
        for found in _PRODUCER.finditer(_run([], [file]))
    }


def dump_transactions(partition: Path) -> list[tuple[int, int, int, int]]:
    """The aborted transactions: producer id, first offset, marker's offset, last stable offset."""
    printed = _run([], segment_files(partition, "txnindex"))
    return [
        (int(found[1]), int(found[2]), int(found[3]), int(found[4]))
        for found in _ABORTED.finditer(printed)
    ]
