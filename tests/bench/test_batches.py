"""A broker accepts the clients' batches, with the configured keys, sizes and stamps."""

import random
from collections import Counter

import pytest

from penstock.bench.batches import Template, make_templates, read_stamp, value_of
from penstock.bench.keys import key_source
from penstock.bench.workload import UNIFORM, ZIPF, Workload
from penstock.client.records.partitioner import partition_of_key
from penstock.records.batch import read_header
from penstock.records.builder import read_records
from penstock.records.compression import CODEC_NAMES, compress

RUN = 77


def templates(workload: Workload, partitions: int = 3, client: int = 0) -> list[Template]:
    chance = random.Random(5)
    return make_templates(workload, tuple(range(partitions)), client, chance.random)


def sent(template: Template, sequence: int = 0, due_ns: int = 0) -> bytearray:
    return template.stamped(
        now_ms=1_700_000_000_000,
        producer_id=9,
        producer_epoch=1,
        sequence=sequence,
        run=RUN,
        due_ns=due_ns,
    )


@pytest.mark.parametrize("compression", CODEC_NAMES)
@pytest.mark.parametrize("kind", ["produce", "end-to-end"])
def test_a_batch_is_whole_and_carries_its_numbers(kind: str, compression: str) -> None:
    workload = Workload(kind=kind, size_bytes=50, batch_records=7, compression=compression)
    template = templates(workload)[0]
    data = sent(template, sequence=40)
    records = read_records(data)  # the checksum is right, or this raises
    header = read_header(data)
    assert [len(one.value or b"") for one in records] == [50] * 7
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 40)
    assert CODEC_NAMES[header.codec] == compression
    assert {one.timestamp_ms for one in records} == {1_700_000_000_000}


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("keys", ["none", "uniform"])
def test_a_stamp_comes_back_and_is_known_by_its_run(compression: str, keys: str) -> None:
    workload = Workload(
        kind="end-to-end", size_bytes=16, batch_records=3, compression=compression, keys=keys
    )
    for number, template in enumerate(templates(workload)[:5]):
        data = memoryview(sent(template, due_ns=123_456_789 + number))
        header = read_header(data)
        assert read_stamp(data, 0, header, RUN) == 123_456_789 + number
        assert read_stamp(data, 0, header, RUN + 1) is None


def test_records_of_others_have_no_stamp() -> None:
    data = memoryview(sent(templates(Workload(size_bytes=4, batch_records=1))[0]))
    assert read_stamp(data, 0, read_header(data), RUN) is None


def test_without_keys_partitions_take_turns_and_clients_begin_apart() -> None:
    workload = Workload(size_bytes=10, batch_records=1)
    assert [one.partition for one in templates(workload, 3, client=0)] == [0, 1, 2]
    assert [one.partition for one in templates(workload, 3, client=4)] == [1, 2, 0]


def test_keys_go_where_kafkas_clients_put_them() -> None:
    workload = Workload(size_bytes=10, batch_records=20, keys=UNIFORM, key_count=50)
    for template in templates(workload):
        for record in read_records(sent(template)):
            assert record.key is not None
            assert partition_of_key(record.key, 3) == template.partition


def test_few_keys_have_most_records_with_zipf_and_not_with_uniform() -> None:
    share = {}
    for distribution in (UNIFORM, ZIPF):
        next_key = key_source(distribution, 1000, random.Random(3).random)
        counts = Counter(next_key() for _ in range(20_000))
        share[distribution] = sum(count for _, count in counts.most_common(10)) / 20_000
    assert share[ZIPF] > 0.3
    assert share[UNIFORM] < 0.05


def test_values_compress_to_about_half() -> None:
    values = b"".join(value_of(1000, random.Random(number).random) for number in range(50))
    packed = compress(CODEC_NAMES.index("zstd"), values)
    assert 0.3 < len(packed) / len(values) < 0.6
