"""etcd's messages: requests to bytes and bytes to answers (pure).

The numbers of the fields are etcd's v3 API, which 3.4, 3.5 and 3.6 share. Only fields that Penstock
uses are here. They are written by hand, so that no code generator's version and no second copy of
etcd's definitions in the process can conflict. A key is text; bytes that are not UTF-8, which only
other programs write, survive a round trip.

They decide nothing: `etcd_transactions` chooses the requests, `answer_guard` judges the answers.
"""

from typing import Final, NamedTuple

from penstock.cluster.etcd.protobuf_wire import Fields, bytes_field, number_field, parse
from penstock.cluster.stores.port import Event, KeyValue

RANGE: Final = "/etcdserverpb.KV/Range"
TRANSACTION: Final = "/etcdserverpb.KV/Txn"
LEASE_GRANT: Final = "/etcdserverpb.Lease/LeaseGrant"
LEASE_REVOKE: Final = "/etcdserverpb.Lease/LeaseRevoke"
LEASE_KEEP_ALIVE: Final = "/etcdserverpb.Lease/LeaseKeepAlive"
WATCH: Final = "/etcdserverpb.Watch/Watch"
AUTHENTICATE: Final = "/etcdserverpb.Auth/Authenticate"

_ALL_KEYS: Final = b"\x00"
"""As the first key and as the end of a range: every key."""


class Header(NamedTuple):
    """What every answer begins with."""

    cluster_id: int = 0
    member_id: int = 0
    revision: int = 0
    raft_term: int = 0


class RangeAnswer(NamedTuple):
    """Keys at one revision."""

    header: Header
    values: tuple[KeyValue, ...]
    has_more: bool


class TransactionAnswer(NamedTuple):
    """The result of a transaction."""

    header: Header
    succeeded: bool
    changed: bool
    """Whether an operation wrote or deleted a key."""
    values: tuple[KeyValue, ...]
    """Of the reads."""


class LeaseAnswer(NamedTuple):
    """A lease that was granted or kept alive."""

    header: Header
    lease: int
    time_to_live_seconds: int
    """0: the lease does not exist."""


class Revised(NamedTuple):
    """A changed key and the revision that changed it."""

    revision: int
    event: Event


class WatchMessage(NamedTuple):
    """One message of a watch."""

    header: Header
    is_created: bool
    is_canceled: bool
    """Looked at first: a refused watch is created and canceled at once."""
    compact_revision: int
    cancel_reason: str
    is_fragment: bool
    events: tuple[Revised, ...]


class TokenAnswer(NamedTuple):
    """The token of a user."""

    header: Header
    token: str


def key_bytes(key: str) -> bytes:
    """Return a key as etcd has it."""
    return key.encode("utf-8", "surrogateescape")


def prefix_range(prefix: str) -> tuple[bytes, bytes]:
    """Return the first key of a prefix and the first key after it."""
    first = key_bytes(prefix)
    if not first:
        return _ALL_KEYS, _ALL_KEYS
    # No byte of UTF-8 is 0xFF, and a prefix is text.
    return first, first[:-1] + bytes((first[-1] + 1,))


def range_request(key: bytes, end: bytes = b"", *, limit: int = 0, revision: int = 0) -> bytes:
    """Read keys; the answer is as new as the newest acknowledged write."""
    return b"".join(
        (
            bytes_field(1, key),
            bytes_field(2, end) if end else b"",
            number_field(3, limit) if limit else b"",
            number_field(4, revision) if revision else b"",
        )
    )


def put_request(key: bytes, value: bytes, lease: int) -> bytes:
    """Write a key and bind it to a lease, or to none with 0."""
    bound = number_field(3, lease) if lease else b""
    return bytes_field(1, key) + bytes_field(2, value) + bound


def delete_request(key: bytes, end: bytes = b"") -> bytes:
    """Delete one key, or the keys of a range."""
    return bytes_field(1, key) + (bytes_field(2, end) if end else b"")


def lease_grant_request(time_to_live_seconds: int) -> bytes:
    """Grant a lease; etcd chooses its id."""
    return number_field(1, time_to_live_seconds)


def lease_request(lease: int) -> bytes:
    """Name a lease, to revoke it or to keep it alive."""
    return number_field(1, lease)


def authenticate_request(user: str, password: str) -> bytes:
    """Ask for a token."""
    return bytes_field(1, user.encode()) + bytes_field(2, password.encode())


def watch_create_request(key: bytes, end: bytes, start_revision: int) -> bytes:
    """Watch a range, starting at a revision."""
    created = bytes_field(1, key) + bytes_field(2, end) + number_field(3, start_revision)
    return bytes_field(1, created)


def watch_progress_request() -> bytes:
    """Ask a watch for a message, although nothing changed."""
    return bytes_field(3, b"")


def read_range(message: bytes) -> RangeAnswer:
    """Read the answer to a range request."""
    fields = parse(message)
    values = tuple(read_key_value(text) for number, text in fields.texts if number == 2)
    return RangeAnswer(_header(fields), values, bool(fields.number(3)))


def read_transaction(message: bytes) -> TransactionAnswer:
    """Read the answer to a transaction."""
    fields = parse(message)
    succeeded = bool(fields.number(2))
    changed = False
    values: list[KeyValue] = []
    for number, text in fields.texts:
        if number != 3:
            continue
        for kind, answer in parse(text).texts:
            if kind == 1:
                values.extend(read_range(answer).values)
            elif kind == 2:
                changed = True
            elif kind == 3:
                changed = changed or parse(answer).number(2) > 0
    return TransactionAnswer(_header(fields), succeeded, changed, tuple(values))


def read_lease(message: bytes) -> LeaseAnswer:
    """Read the answer to a grant or a keep-alive."""
    fields = parse(message)
    return LeaseAnswer(_header(fields), fields.number(2), fields.number(3))


def read_header(message: bytes) -> Header:
    """Read the header of any answer."""
    return _header(parse(message))


def read_token(message: bytes) -> TokenAnswer:
    """Read the answer to an authentication."""
    fields = parse(message)
    return TokenAnswer(_header(fields), _text(fields, 2))


def read_watch(message: bytes) -> WatchMessage:
    """Read a message of a watch."""
    fields = parse(message)
    return WatchMessage(
        header=_header(fields),
        is_created=bool(fields.number(3)),
        is_canceled=bool(fields.number(4)),
        compact_revision=fields.number(5),
        cancel_reason=_text(fields, 6),
        is_fragment=bool(fields.number(7)),
        events=tuple(_revised(text) for number, text in fields.texts if number == 11),
    )


def read_key_value(message: bytes) -> KeyValue:
    """Read one key."""
    fields = parse(message)
    key = value = b""
    for number, text in fields.texts:
        if number == 1:
            key = text
        elif number == 5:
            value = text
    numbers = fields.numbers
    return KeyValue(
        key.decode("utf-8", "surrogateescape"),
        value,
        numbers.get(2, 0),
        numbers.get(3, 0),
        fields.number(6),
    )


def _revised(message: bytes) -> Revised:
    fields = parse(message)
    pair = KeyValue("", b"", 0, 0, 0)
    for number, text in fields.texts:
        if number == 2:
            pair = read_key_value(text)
    is_deletion = bool(fields.number(1))
    return Revised(pair.mod_revision, Event(pair.key, None if is_deletion else pair))


def _header(fields: Fields) -> Header:
    for number, text in fields.texts:
        if number == 1:
            found = parse(text).numbers
            return Header(found.get(1, 0), found.get(2, 0), found.get(3, 0), found.get(4, 0))
    return Header()


def _text(fields: Fields, wanted: int) -> str:
    for number, text in fields.texts:
        if number == wanted:
            return text.decode("utf-8", "replace")
    return ""
