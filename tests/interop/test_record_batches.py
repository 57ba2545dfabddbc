"""Batches between Penstock, kafka-python, aiokafka and Apache Kafka's own classes, both ways.

Two questions: do others read our batches, and we theirs, for each codec; and does Apache Kafka's
leader decide as we do about good and damaged batches. Where it does not, the difference must be one
that docs/formats/record-batch.md lists.

The clients are imported in the tests: the fast run collects this file too, and needs none of them.
"""

import random
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidBatchError,
    InvalidTimestampError,
    RecordsError,
    UnsupportedCompressionError,
)
from penstock.records import compression
from penstock.records.batch import HEADER_BYTES, patch_max_timestamp, read_header
from penstock.records.builder import build_batch, read_records
from penstock.records.record import Header, Record
from penstock.records.validation import ProduceRules, validate_produced
from tests.oracle.kafka_jars import java_command, kafka_jars

pytestmark = [
    pytest.mark.interop,
    # kafka-python reads its schemas through functions that Python 3.11 deprecates.
    pytest.mark.filterwarnings("ignore:.*Use files\\(\\) instead:DeprecationWarning"),
]

NOW = 1_700_000_000_000
RULES = ProduceRules(1_048_588)
CODECS = pytest.mark.parametrize("codec", range(5), ids=compression.CODEC_NAMES)
RECORDS = [
    Record(
        b"key %d" % i if i % 3 else None,
        b"value " * (i % 50) if i % 7 else None,
        (Header("one", b"1"), Header("none", None)) if i % 2 else (),
        NOW + i,
        i,
    )
    for i in range(400)
]


def checked(data: bytes | bytearray) -> memoryview:
    return validate_produced(
        memoryview(bytearray(data)), topic_limits=RULES, produce_version=11, now_ms=NOW
    ).buffer


@CODECS
def test_kafka_python_writes(codec: int) -> None:
    from kafka.record import MemoryRecordsBuilder

    builder = MemoryRecordsBuilder(magic=2, compression_type=codec, batch_size=1 << 20)
    for record in RECORDS:
        builder.append(
            record.timestamp_ms,
            record.key,
            record.value,
            [tuple(header) for header in record.headers],
        )
    builder.close()
    assert read_records(checked(bytes(builder.buffer()))) == RECORDS


@CODECS
def test_kafka_python_reads(codec: int) -> None:
    from kafka.record import MemoryRecords

    batch = MemoryRecords(bytes(build_batch(RECORDS, codec=codec))).next_batch()
    assert batch.validate_crc()
    found = [
        Record(r.key, r.value, tuple(Header(*h) for h in r.headers), r.timestamp, r.offset)
        for r in batch
    ]
    assert found == RECORDS


@CODECS
def test_aiokafka_writes(codec: int) -> None:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for record in RECORDS:
        headers = [tuple(header) for header in record.headers]
        builder.append(record.offset, record.timestamp_ms, record.key, record.value, headers)
    assert read_records(checked(bytes(builder.build()))) == RECORDS


@CODECS
def test_aiokafka_reads(codec: int) -> None:
    from aiokafka.record.default_records import DefaultRecordBatch

    batch = DefaultRecordBatch(bytes(build_batch(RECORDS, codec=codec)))
    assert batch.validate_crc()
    found = [
        Record(r.key, r.value, tuple(Header(*h) for h in r.headers), r.timestamp, r.offset)
        for r in batch
    ]
    assert found == RECORDS


# --- Apache Kafka's leader as the judge ---

CODES: dict[type[RecordsError], int] = {
    CorruptBatchError: 2,
    BatchTooLargeError: 10,
    InvalidTimestampError: 32,
    UnsupportedCompressionError: 76,
    InvalidBatchError: 87,
}
UNKNOWN_SERVER_ERROR = -1
"""Kafka's answer where it did not expect the input: bytes that do not unfold, unknown codecs."""


def kafka_answers(folder: Path, cases: list[tuple[bytes, ProduceRules]]) -> list[list[str]]:
    """One line for each case from Kafka's own validation; see RecordValidation.java."""
    source = Path(__file__).with_name("RecordValidation.java")
    compiler = shutil.which("javac")
    assert compiler is not None, "install a JDK, 17 or later"
    subprocess.run(
        [compiler, "-d", folder, "-cp", f"{kafka_jars()}/*", source], check=True, timeout=120
    )
    lines = [
        f"11 {rules.batch_bytes_max} {int(rules.compacted)} {rules.timestamp_type} "
        f"{rules.before_max_ms} {rules.after_max_ms} {NOW} "
        f"{-1 if rules.codec is None else rules.codec} {data.hex()}"
        for data, rules in cases
    ]
    command = java_command("RecordValidation", appended_to_class_path=folder, log_level="error")
    finished = subprocess.run(
        command,
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    answers = [line.split(" ", 2) for line in finished.stdout.splitlines()]
    assert len(answers) == len(cases), finished.stderr
    return answers


def our_answer(data: bytes, rules: ProduceRules) -> tuple[int, str, memoryview | None]:
    try:
        found = validate_produced(
            memoryview(bytearray(data)), topic_limits=rules, produce_version=11, now_ms=NOW
        )
    except RecordsError as error:
        return CODES[type(error)], str(error), None
    return 0, str(found.max_timestamp_ms), found.buffer


def test_kafka_reads_and_accepts_what_we_write(tmp_path: Path) -> None:
    cases = [
        (bytes(build_batch(RECORDS, codec=source)), replace(RULES, codec=target))
        for source in range(5)
        for target in (None, 0, 1, 2, 3, 4)
    ]
    for (data, rules), (verdict, max_timestamp, batch) in zip(
        cases, kafka_answers(tmp_path, cases), strict=True
    ):
        assert verdict == "ok", (max_timestamp, batch)
        assert int(max_timestamp) == NOW + len(RECORDS) - 1
        assert read_records(bytes.fromhex(batch)) == RECORDS
        code, _, ours = our_answer(data, rules)
        assert code == 0
        assert ours is not None
        assert read_header(ours).codec == read_header(bytes.fromhex(batch)).codec


def damaged_batch(chance: random.Random) -> bytes:
    records = [
        Record(
            chance.choice([None, b"k"]),
            chance.choice([None, b"v" * chance.randrange(80)]),
            tuple(Header("h", chance.choice([None, b"1"])) for _ in range(chance.randrange(3))),
            chance.choice([-1, NOW, NOW + 5, NOW + 9_999_999]),
        )
        for _ in range(chance.randrange(1, 4))
    ]
    codec = chance.choice([0, 0, 0, 1, 2, 3, 4])
    data = build_batch(records)
    position = chance.randrange(HEADER_BYTES if codec else 12, len(data))
    data[position] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    if codec:
        header = build_batch(records, codec=codec)[:HEADER_BYTES]
        data = header + compression.compress(codec, data[HEADER_BYTES:])
    struct.pack_into(">i", data, 8, len(data) - 12)
    if chance.random() < 0.9:
        patch_max_timestamp(data, 0, read_header(data), read_header(data).max_timestamp_ms)
    return bytes(data)


def is_listed_difference(ours: int, reason: str, theirs: int) -> bool:
    """Whether docs/formats/record-batch.md lists it: we refuse, and Kafka stores or breaks."""
    if theirs == UNKNOWN_SERVER_ERROR:
        return ours in (2, 76, 87)
    if ours == 87:
        # Kafka walks compressed records without their keys and values, and checks no offset delta.
        return reason.startswith("record ") or "delete horizon" in reason or "producer" in reason
    return ours == 32 and ("LogAppendTime" in reason or "outside" in reason)


def test_kafka_decides_alike_about_damaged_batches(tmp_path: Path) -> None:
    chance = random.Random(4)
    cases = [
        (
            damaged_batch(chance),
            replace(
                RULES, compacted=chance.random() < 0.2, timestamp_type=chance.choice([0, 0, 1])
            ),
        )
        for _ in range(3000)
    ]
    agreed = 0
    for (data, rules), answer in zip(cases, kafka_answers(tmp_path, cases), strict=True):
        theirs = 0 if answer[0] == "ok" else int(answer[0])
        ours, detail, _ = our_answer(data, rules)
        if ours == theirs:
            agreed += 1
            assert theirs != 0 or detail == answer[1], (data.hex(), detail, answer)
        else:
            assert is_listed_difference(ours, detail, theirs), (data.hex(), ours, detail, answer)
    assert agreed > 0.9 * len(cases)
