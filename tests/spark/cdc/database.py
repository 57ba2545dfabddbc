"""A random database for Debezium: a table of every type, its changes, and its rows as they are now.

Its columns have long values that PostgreSQL stores apart (TOAST). With REPLICA IDENTITY FULL, as
the guide says, updates carry them; with the default identity they do not, and keys do not change.
Rows are compared in one plain form: numbers and times as texts of the database, bytes in
hexadecimal digits.
"""

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

from tests.oracle.postgres import Postgres

_COLUMNS: Final = (
    "id bigint primary key, name text, amount numeric(10,2), exact numeric, at timestamp(6), "
    "at_ms timestamp(3), seen timestamptz, born date, doc jsonb, code uuid, data bytea, "
    "tags int[], words text[], is_open boolean, ratio double precision, small smallint, "
    "big bigint, clock time"
)
_STORED: Final = ", ".join(
    f"alter {one} set storage external" for one in ("name", "data", "words", "doc")
)
CREATE: Final = (
    f"create table orders ({_COLUMNS})",
    f"alter table orders {_STORED}",
)
_WHOLE_ROWS: Final = "alter table orders replica identity full"
_LOG: Final = (
    "create table audit (n bigserial, gone boolean, like orders)",
    """create function noted() returns trigger language plpgsql as $$ begin
    if tg_op = 'DELETE' or (tg_op = 'UPDATE' and old.id <> new.id) then
    insert into audit (gone, id) values (true, old.id); end if;
    if tg_op <> 'DELETE' then
    insert into audit select nextval('audit_n_seq'), false, (new).*; end if;
    return null; end $$""",
    """create trigger noted after insert or update or delete on orders
    for each row execute function noted()""",
)
MORE: Final = tuple(f"alter table {one} add column more text" for one in ("orders", "audit"))
DDL: Final = (
    "id bigint, name string, amount decimal(10,2), exact string, at timestamp_ntz, "
    "at_ms timestamp_ntz, seen timestamp, born date, doc string, code string, data binary, "
    "tags array<int>, words array<string>, is_open boolean, ratio double, small smallint, "
    "big bigint, clock bigint"
)
_SHOWN: Final = (
    "id, name, amount::text, trim_scale(exact)::text, (extract(epoch from at) * 1000000)::bigint, "
    "(extract(epoch from at_ms) * 1000000)::bigint, (extract(epoch from seen) * 1000000)::bigint, "
    "born, doc::text, code, encode(data, 'hex'), tags, words, is_open, ratio::text, small, "
    "big::text, (extract(epoch from clock) * 1000000)::bigint"
)
_LONG: Final = "(select string_agg(md5(({seed} + g)::text), '') from generate_series(1, 120) g)"
KEYS: Final = 400


class Orders:
    """The table `orders`."""

    def __init__(self, database: Postgres, seed: int, *, sends_whole_rows: bool = True) -> None:
        self._database = database
        self._sends_whole_rows = sends_whole_rows
        self._chance = random.Random(seed)
        self._has_more = False
        self.changes = 0
        """The number of statements that changed rows."""
        database.execute(*CREATE, *([_WHOLE_ROWS] if sends_whole_rows else []), *_LOG)

    def add_column(self) -> str:
        """Add a column; return the definition's columns."""
        self._database.execute(*MORE)
        self._has_more = True
        return f"{DDL}, more string"

    def change(self, count: int) -> None:
        """Change rows by `count` statements, in transactions of one to five."""
        self._database.execute(*self._transactions(count))
        self.changes += count

    def _transactions(self, count: int) -> Iterator[str]:
        while count:
            size = min(count, self._chance.randint(1, 5))
            count -= size
            statements = ["begin", *(self._statement() for _ in range(size)), "commit"]
            if self._chance.random() < 0.05:
                statements[-1] = "rollback"
            yield "; ".join(statements)

    def _statement(self) -> str:
        key, kind = self._chance.randrange(KEYS), self._chance.random()
        if kind < 0.15:
            return f"delete from orders where id = {key}"
        if kind < 0.22 and self._sends_whole_rows:
            other = self._chance.randrange(KEYS)
            free = f"not exists (select from orders where id = {other})"
            return f"update orders set id = {other} where id = {key} and {free}"
        if kind < 0.6:
            column = self._chance.choice(list(self._values()))
            return f"update orders set {column} = {self._values()[column]} where id = {key}"
        found = self._values()
        names = ", ".join(["id", *found])
        changed = ", ".join(f"{one} = excluded.{one}" for one in found)
        values = ", ".join([str(key), *found.values()])
        put = f"insert into orders ({names}) values ({values})"
        return f"{put} on conflict (id) do update set {changed}"

    def _values(self) -> dict[str, str]:
        """Return a value of each column as SQL; some are nulls, at the edge, or long."""
        chance = self._chance
        long = _LONG.format(seed=chance.randrange(2**30))
        moment = f"timestamp '1960-01-01' + {chance.randrange(2**52)} * interval '1 microsecond'"
        found = {
            "name": chance.choice([long, f"'n{chance.randrange(99)}'", "''", "'ä ''\"\\ 漢'"]),
            "amount": f"{chance.randrange(-(10**10) + 1, 10**10)} / 100.0",
            "exact": chance.choice(["1e-20", "123456789012345678901234567890.5", "0", "-0.10"]),
            "at": moment,
            "at_ms": moment,
            "seen": f"({moment}) at time zone 'UTC'",
            "born": f"date '0001-01-01' + {chance.randrange(3_600_000)}",
            "doc": chance.choice(["'{\"a\": [1, null]}'", f"to_jsonb({long})", "'null'"]),
            "code": f"md5('{chance.randrange(999)}')::uuid",
            "data": chance.choice([f"convert_to({long}, 'UTF8')", "'\\x00ff'", "''"]),
            "tags": chance.choice(["array[1,null,-7]", "'{}'", "array[2147483647]"]),
            "words": chance.choice([f"array[{long}, null]", "array['', 'x']"]),
            "is_open": chance.choice(["true", "false"]),
            "ratio": chance.choice(["0.1", "'NaN'", "'-Infinity'", "1e300", "-0.0"]),
            "small": str(chance.randrange(-(2**15), 2**15)),
            "big": str(chance.choice([2**63 - 1, -(2**63), 9_007_199_254_740_993])),
            "clock": chance.choice(["'10:11:12.123456'", "'00:00'"]),
        }
        if self._has_more:
            found["more"] = f"'m{chance.randrange(99)}'"
        return {one: text if chance.random() < 0.85 else "null" for one, text in found.items()}

    def forget_log(self) -> None:
        """Begin the log with the rows as they are now: what an initial snapshot has."""
        self._database.execute(
            "truncate audit",
            "insert into audit select nextval('audit_n_seq'), false, orders.* from orders",
        )

    def log(self) -> dict[int, list[tuple[Any, ...] | None]]:
        """Return the versions of each key in their order; None is a deletion."""
        found: dict[int, list[tuple[Any, ...] | None]] = {}
        for gone, row in self._database.rows(
            f"select json_build_array(gone, json_build_array({self._columns})) "
            "from audit order by n"
        ):
            found.setdefault(row[0], []).append(None if gone else tuple(map(_plain, row)))
        return found

    @property
    def _columns(self) -> str:
        return f"{_SHOWN}, more" if self._has_more else _SHOWN

    def rows(self) -> dict[int, tuple[Any, ...]]:
        """Return the rows of the database by key."""
        found = self._database.rows(f"select json_build_array({self._columns}) from orders")
        return {one[0]: tuple(map(_plain, one)) for one in found}


def as_database(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row of the table in the form of `rows`."""
    own = {name: value for name, value in row.items() if not name.startswith("_")}
    for name in ("ratio", "big"):
        own[name] = None if own[name] is None else _number(own[name])
    return tuple(_plain(value) for value in own.values())


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    text = repr(value).replace("inf", "Infinity").replace("e+", "e")
    return text.removesuffix(".0")


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return delta.days * 86_400_000_000 + delta.seconds * 1_000_000 + delta.microseconds
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str) and value in {"1e+300", "1e300"}:
        return "1e300"
    return tuple(value) if isinstance(value, list) else value
