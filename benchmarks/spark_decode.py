"""Speed of Spark's kernels on one core: `python -m benchmarks.spark_decode`.

Records are JSON of about 200 bytes with a key of 12. Decoding goes from the stored batches of a
fetch to Arrow record batches, and checks each checksum; encoding goes from Arrow columns to
finished batches. Both are measured in CPU time of the one working thread, because a busy machine
disturbs it least. The best of several rounds is printed.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from penstock.records.builder import build_batch
from penstock.records.compression import CODEC_NAMES
from penstock.records.record import Header, Record
from penstock.spark.decode import kernel
from penstock.spark.decode.columns import BatchDecoder
from penstock.spark.encode.encoder import BatchEncoder

NOW = 1_700_000_000_000
SMALL_BATCH_RECORDS = 75
"""Records in 16 KB, the batch.size of Kafka's producers."""
LARGE_BATCH_RECORDS = 4_900
"""Records in 1 MB, the default limit of brokers."""
FETCH_BYTES = 8_388_608
ARROW_ROWS = 10_000
HEADERS = (Header("trace", b"0123456789abcdef"), Header("source", b"web"))


def record(number: int, headers: tuple[Header, ...] = ()) -> Record:
    """Return a click event."""
    content = {
        "id": number,
        "user": f"user-{number % 1000:06d}",
        "action": "click",
        "page": f"/products/{number % 5000}",
        "price": number % 997 / 10,
        "time": NOW + number,
        "session": f"{number * 2654435761 % 2**32:08x}",
        "agent": "Mozilla/5.0 (X11; Linux x86_64)",
    }
    key = f"key-{number % 100_000:08d}".encode()
    return Record(key, json.dumps(content).encode(), headers, NOW + number)


def fetches(records: list[Record], batch_records: int, codec: int) -> list[bytes]:
    """Return stored batches in the pieces that fetches return."""
    pieces: list[bytes] = []
    piece = bytearray()
    for start in range(0, len(records), batch_records):
        batch = records[start : start + batch_records]
        piece += build_batch(batch, base_offset=start, codec=codec)
        if len(piece) >= FETCH_BYTES:
            pieces.append(bytes(piece))
            piece = bytearray()
    return [*pieces, bytes(piece)]


def decoded_rows(pieces: list[bytes], *, include_headers: bool) -> int:
    """Decode everything; return the number of rows."""
    decoder = BatchDecoder(
        "clicks", 0, 0, 2**62, include_headers=include_headers, is_read_committed=True
    )
    count = 0
    for piece in pieces:
        for batch in decoder.feed(piece):
            count += batch.num_rows
    for batch in decoder.finish():
        count += batch.num_rows
    return count


def encoded_rows(columns: list[dict[str, pa.Array]], codec: int) -> int:
    """Encode everything for four partitions; return the number of records."""
    encoder = BatchEncoder("clicks", 4, codec=codec, producer_id=1, producer_epoch=0)
    count = sum(
        batch.record_count for rows in columns for batch in encoder.add(timestamp_ms=NOW, **rows)
    )
    return count + sum(batch.record_count for batch in encoder.finish())


def arrow_columns(records: list[Record], names: tuple[str, ...]) -> list[dict[str, pa.Array]]:
    """The records as Spark hands them to a sink."""
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    found = []
    for start in range(0, len(records), ARROW_ROWS):
        some = records[start : start + ARROW_ROWS]
        arrays = {
            "key": pa.array([one.key for one in some], pa.binary()),
            "value": pa.array([one.value for one in some], pa.binary()),
            "headers": pa.array([[one._asdict() for one in row.headers] for row in some], headers),
        }
        found.append({name: arrays[name] for name in names})
    return found


def seconds(task: Callable[[], int], count: int, rounds: int) -> float:
    """CPU time of the best round."""
    best = float("inf")
    for _ in range(rounds):
        started = time.thread_time()
        assert task() == count
        best = min(best, time.thread_time() - started)
    return best


def work(count: int) -> Iterator[tuple[str, Callable[[], int]]]:
    """Yield the measured tasks with their names."""
    plain = [record(number) for number in range(count)]
    for batch_records, size in ((SMALL_BATCH_RECORDS, "16 KB"), (LARGE_BATCH_RECORDS, "1 MB")):
        for codec, name in enumerate(CODEC_NAMES):
            pieces = fetches(plain, batch_records, codec)
            yield (
                f"decode {size} batches, {name}",
                partial(decoded_rows, pieces, include_headers=False),
            )
    columns = arrow_columns(plain, ("key", "value"))
    for codec, name in enumerate(CODEC_NAMES):
        yield f"encode keys, {name}", partial(encoded_rows, columns, codec)
    columns = arrow_columns(plain, ("value",))
    yield "encode without keys", partial(encoded_rows, columns, 0)
    rich = [record(number, HEADERS) for number in range(count)]
    pieces = fetches(rich, SMALL_BATCH_RECORDS, 0)
    yield (
        "decode 16 KB batches, 2 headers each",
        partial(decoded_rows, pieces, include_headers=True),
    )
    columns = arrow_columns(rich, ("key", "value", "headers"))
    yield "encode 2 headers each", partial(encoded_rows, columns, 0)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    print(f"kernels compiled: {'yes' if kernel.COMPILED else 'no'}")
    count = arguments.records
    size = sum(len(one.key or b"") + len(one.value or b"") for one in map(record, range(count)))
    for name, task in work(count):
        best = seconds(task, count, arguments.rounds)
        print(
            f"{name:<36} {count / best / 1e6:6.2f} M records/s {size / best / 1e6:6.0f} MB/s "
            f"{best / count * 1e9:6.0f} ns each",
            flush=True,
        )


if __name__ == "__main__":
    main()
