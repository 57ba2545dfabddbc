"""Batches of a site as a producer of the parent sends them."""

from dataclasses import dataclass
from uuid import UUID

from penstock.edge.pipes.common_end import BatchMark
from penstock.edge.pipes.site_batches import Outgoing, SiteRead, outgoing, stamp
from penstock.edge.pipes.up_pipe import SentMark
from penstock.records.batch import HEADER, attributes, checksum_matches, read_header
from penstock.records.builder import LOG_APPEND_TIME, build_batch, read_records
from penstock.records.record import Record
from penstock.records.validation import ProduceRules, validate_produced

TOPIC_ID = UUID(int=7)
RULES = ProduceRules(batch_bytes_max=1_048_576)


def batch(base: int, *values: str, **options: int | bool) -> bytes:
    records = [Record(value=one.encode(), timestamp_ms=50 + n) for n, one in enumerate(values)]
    built = build_batch(records, base_offset=base, **options)  # type: ignore[arg-type]
    return bytes(built)


@dataclass(frozen=True)
class Ended:
    producer_id: int
    first_offset: int
    last_offset: int


def sent(*batches: bytes, offset: int = 0, aborted: tuple[Ended, ...] = ()) -> Outgoing:
    found = outgoing(SiteRead(memoryview(b"".join(batches)), aborted), offset, TOPIC_ID)
    assert found is not None
    return found


def texts(part: Outgoing) -> list[str]:
    return [str(one.value, "ascii") for b in part.batches for one in read_records(b) if one.value]


def test_a_large_batch_goes_up_as_it_is() -> None:
    stored = batch(5, "x" * 5_000, "y", codec=1, producer_id=9, producer_epoch=2, base_sequence=7)
    part = sent(stored, offset=5)
    (found,) = part.batches
    assert stamp(found, 1_000, 3, 40) == 42
    header = read_header(found)
    assert checksum_matches(found, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1_000, 3, 40)
    assert header.is_transactional
    assert (header.base_offset, header.leader_epoch) == (0, -1)
    assert bytes(found[HEADER.size :]) == stored[HEADER.size :]
    assert read_header(stored).base_timestamp_ms == header.base_timestamp_ms
    assert (part.next_offset, part.record_count) == (7, 2)
    assert part.mark == SentMark(TOPIC_ID, BatchMark(5, 6, -1, read_header(stored).crc))
    validate_produced(memoryview(found), topic_limits=RULES, produce_version=12, now_ms=1_000)


def test_sequences_wrap() -> None:
    one = bytearray(batch(0, "a", "b"))
    assert stamp(one, 1, 1, 2**31 - 1) == 1


def test_control_and_aborted_batches_stay() -> None:
    of = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    part = sent(
        batch(0, "aborted", producer_id=1, **of),
        batch(1, "kept", producer_id=2, **of),
        batch(2, "later", producer_id=1, **of),
        aborted=(Ended(1, 0, 1),),
    )
    assert texts(part) == ["kept", "later"]
    marker = bytearray(batch(3, "marker"))
    fields = list(HEADER.unpack_from(marker))
    fields[5] = attributes(codec=0, log_append_time=False, transactional=True, control=True)
    HEADER.pack_into(marker, 0, *fields)
    part = sent(bytes(marker))
    assert (part.batches, part.next_offset, part.record_count) == ((), 4, 0)


def test_batches_that_brokers_reject_are_encoded_anew() -> None:
    holes = bytearray(batch(0, "a", "b", "c"))
    fields = list(HEADER.unpack_from(holes))
    fields[6] = 9  # the last offset delta: compaction has removed records
    HEADER.pack_into(holes, 0, *fields)
    crc = bytearray(holes)
    stamp(crc, -1, -1, -1)
    fields[4] = read_header(crc).crc
    holes[:] = crc
    timed = batch(20, "x" * 5_000, timestamp_type=LOG_APPEND_TIME)
    within = batch(30, "no", "y" * 5_000)
    part = sent(bytes(holes), timed, offset=0)
    assert texts(part) == ["a", "b", "c", "x" * 5_000]
    for one in (*part.batches, *sent(within, offset=31).batches):
        stamp(one, 1, 0, 0)
        validate_produced(memoryview(one), topic_limits=RULES, produce_version=12, now_ms=1_000)
    assert texts(sent(within, offset=31)) == ["y" * 5_000]


def test_small_batches_are_joined_up_to_a_bound() -> None:
    many = [batch(n, "v" * 3_000) for n in range(200)]
    part = sent(*many)
    assert part.record_count == 200
    assert 2 < len(part.batches) < 5
    assert all(len(one) < 300_000 for one in part.batches)
    read = SiteRead(memoryview(b"".join(many)), ())
    alone = outgoing(read, 0, TOPIC_ID, is_joining=False)
    assert alone is not None
    assert len(alone.batches) == 200
