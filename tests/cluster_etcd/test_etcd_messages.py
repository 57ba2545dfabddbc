"""Messages: our bytes are those of the Protocol Buffers library, and broken bytes are errors."""

import contextlib

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.etcd import etcd_messages as messages
from penstock.cluster.etcd.etcd_limits import REQUEST_BYTES_MAX
from penstock.cluster.etcd.etcd_transactions import (
    first_session,
    transaction_request,
    transaction_result,
)
from penstock.cluster.etcd.protobuf_wire import MalformedMessageError, number_field, parse, varint
from penstock.cluster.stores.port import Compare, Delete, DeletePrefix, Event, KeyValue, Put
from penstock.core.errors import StoreError

SCHEMA = {
    "KeyValue": "bytes key 1, int create 2, int mod 3, int version 4, bytes value 5, int lease 6",
    "Event": "int type 1, KeyValue kv 2, KeyValue prev_kv 3",
    "Header": "uint cluster_id 1, uint member_id 2, int revision 3, uint raft_term 4",
    "Range": "bytes key 1, bytes range_end 2, int limit 3, int revision 4",
    "RangeAnswer": "Header header 1, KeyValue* kvs 2, bool more 3, int count 4",
    "Put": "bytes key 1, bytes value 2, int lease 3",
    "Deletion": "bytes key 1, bytes range_end 2",
    "DeletionAnswer": "Header header 1, int deleted 2",
    "PutAnswer": "Header header 1",
    "RequestOp": "Range range 1, Put put 2, Deletion deletion 3",
    "ResponseOp": "RangeAnswer range 1, PutAnswer put 2, DeletionAnswer deletion 3",
    "Compare": "int result 1, int target 2, bytes key 3, int created 5, int modified 6",
    "Txn": "Compare* compare 1, RequestOp* success 2, RequestOp* failure 3",
    "TxnAnswer": "Header header 1, bool succeeded 2, ResponseOp* responses 3",
    "WatchCreate": "bytes key 1, bytes range_end 2, int start_revision 3",
    "WatchProgress": "",
    "WatchRequest": "WatchCreate create 1, WatchProgress progress 3",
    "WatchAnswer": "Header header 1, int watch_id 2, bool created 3, bool canceled 4, "
    "int compact_revision 5, string cancel_reason 6, bool fragment 7, Event* events 11",
    "LeaseAnswer": "Header header 1, int id 2, int ttl 3, string error 4",
    "Login": "string name 1, string password 2",
    "Token": "Header header 1, string token 2",
}
"""The parts of etcd's API that Penstock uses, written a second time and in another way."""

Field = descriptor_pb2.FieldDescriptorProto
KINDS = {
    "bytes": Field.TYPE_BYTES,
    "int": Field.TYPE_INT64,
    "uint": Field.TYPE_UINT64,
    "bool": Field.TYPE_BOOL,
    "string": Field.TYPE_STRING,
}


def library() -> dict[str, type[message.Message]]:
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    for name, fields in SCHEMA.items():
        described = file.message_type.add(name=name)
        for words in filter(None, fields.split(", ")):
            kind, title, number = words.split()
            field = described.field.add(name=title, number=int(number))
            field.label = Field.LABEL_REPEATED if kind.endswith("*") else Field.LABEL_OPTIONAL
            base = kind.rstrip("*")
            field.type = KINDS.get(base, Field.TYPE_MESSAGE)
            if base not in KINDS:
                field.type_name = f".t.{base}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{name}"))
        for name in SCHEMA
    }


LIBRARY = library()
whole = st.integers(min_value=0, max_value=2**63 - 1)
keys = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
headers = st.builds(messages.Header, *([whole] * 4))
pairs = st.builds(KeyValue, keys, st.binary(max_size=20), whole, whole, whole)


def build(name: str, /, **fields: object) -> message.Message:
    return LIBRARY[name](**fields)


def library_header(header: messages.Header) -> message.Message:
    names = ("cluster_id", "member_id", "revision", "raft_term")
    return build("Header", **dict(zip(names, header, strict=True)))


def library_pair(pair: KeyValue) -> message.Message:
    return build(
        "KeyValue",
        key=pair.key.encode(),
        value=pair.value,
        create=pair.create_revision,
        mod=pair.mod_revision,
        version=7,
        lease=pair.session,
    )


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_integers_survive(value: int) -> None:
    assert parse(number_field(3, value)).number(3) == value
    read = LIBRARY["Range"].FromString(number_field(3, value))
    assert read == build("Range", limit=value)


@given(headers, st.lists(pairs, max_size=4), st.booleans())
def test_ranges(header: messages.Header, found: list[KeyValue], has_more: bool) -> None:
    sent = build(
        "RangeAnswer",
        header=library_header(header),
        kvs=[library_pair(pair) for pair in found],
        more=has_more,
        count=9,
    )
    answer = messages.read_range(sent.SerializeToString())
    assert answer == (header, tuple(found), has_more)
    request = messages.range_request(b"/a", b"/b", limit=5, revision=6)
    asked = build("Range", key=b"/a", range_end=b"/b", limit=5, revision=6)
    assert LIBRARY["Range"].FromString(request) == asked


@given(headers, st.lists(pairs, max_size=3), st.integers(0, 3), st.booleans(), st.booleans())
def test_transaction_answers(
    header: messages.Header, found: list[KeyValue], deleted: int, has_put: bool, succeeded: bool
) -> None:
    operations = [
        build("ResponseOp", deletion=build("DeletionAnswer", deleted=deleted)),
        *(
            build("ResponseOp", range=build("RangeAnswer", kvs=[library_pair(pair)]))
            for pair in found
        ),
        *([build("ResponseOp", put=build("PutAnswer"))] if has_put else []),
    ]
    sent = build(
        "TxnAnswer", header=library_header(header), succeeded=succeeded, responses=operations
    )
    answer = messages.read_transaction(sent.SerializeToString())
    is_changed = has_put or deleted > 0
    assert answer == (header, succeeded, is_changed, tuple(found))
    result = transaction_result(answer)
    assert result.changed is (succeeded and is_changed)
    assert result.values == (() if succeeded else tuple(found))


def test_transaction_requests() -> None:
    request = transaction_request(
        (Compare.created_at("/a", 0), Compare.unchanged("/b", 7)),
        (Put("/c", b"1", 9), Put("/d", b""), Delete("/e"), DeletePrefix("/f/")),
        ("/a", "/b"),
    )
    assert LIBRARY["Txn"].FromString(request) == build(
        "Txn",
        compare=[
            build("Compare", target=1, key=b"/a", created=0),
            build("Compare", target=2, key=b"/b", modified=7),
        ],
        success=[
            build("RequestOp", put=build("Put", key=b"/c", value=b"1", lease=9)),
            build("RequestOp", put=build("Put", key=b"/d")),
            build("RequestOp", deletion=build("Deletion", key=b"/e")),
            build("RequestOp", deletion=build("Deletion", key=b"/f/", range_end=b"/f0")),
        ],
        failure=[build("RequestOp", range=build("Range", key=key)) for key in (b"/a", b"/b")],
    )
    assert messages.prefix_range("") == (b"\0", b"\0")
    assert first_session((Put("/d", b""), Put("/c", b"1", 9), Delete("/e"))) == 9


def test_a_transaction_that_is_too_large_is_refused_with_its_size() -> None:
    operations = [Put(f"/{number}", bytes(1_000_000)) for number in range(2)]
    with pytest.raises(StoreError, match=f"20000.. bytes, etcd accepts {REQUEST_BYTES_MAX}: write"):
        transaction_request((), operations, ())


@given(headers, st.lists(st.tuples(pairs, st.booleans()), max_size=4), st.booleans())
def test_watch_messages(
    header: messages.Header, changes: list[tuple[KeyValue, bool]], is_created: bool
) -> None:
    events = [build("Event", type=int(gone), kv=library_pair(pair)) for pair, gone in changes]
    sent = build(
        "WatchAnswer",
        header=library_header(header),
        watch_id=-1,
        created=is_created,
        canceled=True,
        compact_revision=5,
        cancel_reason="etcdserver: später",
        fragment=True,
        events=events,
    )
    expected = tuple(
        messages.Revised(pair.mod_revision, Event(pair.key, None if gone else pair))
        for pair, gone in changes
    )
    read = messages.read_watch(sent.SerializeToString())
    assert read == (header, is_created, True, 5, "etcdserver: später", True, expected)


def test_watch_requests() -> None:
    created = build("WatchCreate", key=b"/a", range_end=b"/b", start_revision=8)
    request = messages.watch_create_request(b"/a", b"/b", 8)
    assert LIBRARY["WatchRequest"].FromString(request) == build("WatchRequest", create=created)
    progress = LIBRARY["WatchRequest"].FromString(messages.watch_progress_request())
    assert progress.HasField("progress")


def test_leases_and_tokens() -> None:
    sent = build("LeaseAnswer", header=build("Header", revision=3), id=2**62, ttl=9)
    answer = messages.read_lease(sent.SerializeToString())
    assert answer == (messages.Header(revision=3), 2**62, 9)
    login = LIBRARY["Login"].FromString(messages.authenticate_request("ünal", "pässword"))
    assert login == build("Login", name="ünal", password="pässword")
    token = build("Token", header=build("Header", revision=3), token="abc.1")
    assert messages.read_token(token.SerializeToString()).token == "abc.1"


def test_keys_that_are_not_text_survive() -> None:
    foreign = build("KeyValue", key=b"/x\xff\xfe", value=b"1").SerializeToString()
    key = messages.read_key_value(foreign).key
    assert messages.key_bytes(key) == b"/x\xff\xfe"


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    for read in (messages.read_range, messages.read_watch, messages.read_transaction):
        with contextlib.suppress(MalformedMessageError):
            read(data)


@pytest.mark.parametrize(
    "data", [b"\x0a\x05abc", b"\x80", b"\x08" + b"\xff" * 11, b"\x0b", b"\x09a"]
)
def test_broken_bytes(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        parse(data)


def test_fields_that_are_unknown_are_skipped() -> None:
    data = b"\x09" + bytes(8) + b"\x0d" + bytes(4) + varint(9 << 3) + b"\x05" + number_field(2, 1)
    assert parse(data).number(2) == 1
