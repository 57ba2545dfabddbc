"""The JSON kernel: reads JSON values into the buffers of Arrow columns, in one pass.

Guarantees: a written row is the result of `json.rows`, and no object is created for a value. Every
other row is only listed, and leaves no gap. A malformed row, or a cut row that ends too early, is
not JSON for any reader. A problem is JSON, and its column seems to reject a value in it. Nothing is
known about a doubt. The caller finds the reasons. `run` stops if there is no room for a text, and
continues with the same row.

This is the hot loop of a Spark task, so the file is compiled, and so are its parts, `json.scan`,
`json.field_names`, `json.columns`, `json.double` and `json.time`: plain Python here, the C types in
`json/kernel.pxd`. Uncompiled it has the same results, far slower than the database. `COMPILED` is
true if the C extension runs. Every change must hold for 64-bit integers that wrap.

It does not use Arrow or schemas: `json.buffers` fills its tables and provides the memory.
"""

from typing import Final

from penstock.spark.encode.binary_column import BinaryColumn
from penstock.spark.tables.values.columnar.columns import ArrowColumns
from penstock.spark.tables.values.json.columns import JsonColumns
from penstock.spark.tables.values.json.field_names import FieldNames
from penstock.spark.tables.values.json.scan import JsonScanner

COMPILED: Final = not __file__.endswith(".py")
"""Whether the C extension runs."""

ENDED: Final = 0
"""All rows are read."""
GROW: Final = 3
"""A column of texts or a level has no room: `target.full_field` or `target.full_level`."""
PROBLEM_NUMBERS: Final = 4
"""A problem is the row, the column, and the start and end of the value in the data. A missing value
starts at -1."""

# The names for the C code are private: they are C integers, which Python cannot import.
_READ: Final = 0
_DOUBT: Final = 1
_PROBLEM: Final = 2
_GROW: Final = 3
_MALFORMED: Final = 4
_CUT: Final = 5
_STRUCT: Final = 0
_STRING: Final = 8
_LIST: Final = 13
_MAP: Final = 14
_UNKNOWN: Final = -1
_UNREADABLE: Final = -2
_ROOT: Final = 0
_NO_FIELD: Final = 0x7FFFFFFF
_QUOTE: Final = 0x22
_COMMA: Final = 0x2C
_PLUS: Final = 0x2B
_MINUS: Final = 0x2D
_SLASH: Final = 0x2F
_ZERO: Final = 0x30
_NINE: Final = 0x39
_COLON: Final = 0x3A
_LETTER_A: Final = 0x61
_LETTER_F: Final = 0x66
_LETTER_N: Final = 0x6E
_LETTER_T: Final = 0x74
_ARRAY: Final = 0x5B
_ARRAY_END: Final = 0x5D
_OBJECT: Final = 0x7B
_OBJECT_END: Final = 0x7D
_END: Final = -1
_KEYS_MAX: Final = 64
"""Each key of a map is compared with those before it; larger maps are doubts."""


class JsonKernel:
    """Reads one column after another.

    Fields are numbered so that a struct is before its fields. Number 0 is the value itself; its
    fields are the columns, in their order and before all others.
    """

    def __init__(self, target: ArrowColumns) -> None:
        fields = self.fields = target.fields
        self.target = target
        self.scanner = JsonScanner()
        self.columns = JsonColumns(self.scanner, target)
        self.source = BinaryColumn(0)
        self.names = FieldNames(self.scanner, fields)
        self.is_required = _numbers(fields)
        self.has_required = _numbers(fields)
        # The field found after a struct's opening bracket, and after another field; 0 is none.
        self.firsts = _numbers(fields)
        self.follows = _numbers(fields)
        # By field: the level of the items of a list or map; the last object that has the field.
        self.inner_levels = _numbers(fields)
        self.seen = _numbers(fields)
        self.stamp = 0
        self.previous = self.expected = 0
        self.row = 0
        self.is_problem = False
        self.problem_field = self.problem_start = self.problem_end = 0
        self.forget()

    def forget(self) -> None:
        """Release all buffers."""
        self.source = BinaryColumn(0)
        self.scanner.forget()
        self.target.forget()
        self.doubts = self.malformed = self.cut = self.problems = self.row_numbers = _numbers(0)
        self.doubt_count = 0
        self.cut_count = 0
        self.malformed_count = 0
        self.problem_count = 0

    def begin(self, source: BinaryColumn) -> None:
        """Read this column from its first row, into the current buffers."""
        assert min(len(self.row_numbers), len(self.doubts)) >= source.rows
        assert min(len(self.malformed), len(self.cut)) >= source.rows
        assert len(self.problems) >= source.rows * PROBLEM_NUMBERS
        self.source = source
        self.scanner.open(source.data, 0, 0)
        self.row = 0
        self.doubt_count = 0
        self.malformed_count = 0
        self.cut_count = 0
        self.problem_count = 0
        self.target.data = source.data
        self.target.begin()

    def run(self) -> int:
        """Read rows; return ENDED, or GROW if there is no room for a text."""
        while self.row < self.source.rows:
            code = self.read_row(self.source.locate(self.row))
            if code == _READ:
                self.row_numbers[self.target.lengths[0]] = self.row
                self.target.commit_row()
            else:
                self.target.abandon_row()
                if code == _GROW:
                    return code
                self.leave_row(code)
            self.row += 1
        return _READ

    def leave_row(self, code: int) -> None:
        """List the row, which is not read for this reason."""
        if code == _DOUBT:
            self.doubts[self.doubt_count] = self.row
            self.doubt_count += 1
        elif code == _PROBLEM:
            self.write_problem()
        elif code == _MALFORMED:
            self.malformed[self.malformed_count] = self.row
            self.malformed_count += 1
        else:
            self.cut[self.cut_count] = self.row
            self.cut_count += 1

    def doubt_row(self) -> None:
        """Go on behind the row for which there is no room: it is in doubt."""
        self.leave_row(_DOUBT)
        self.row += 1

    def write_problem(self) -> None:
        """Write the column of the problem, and the position of its value in the data."""
        at = self.problem_count * 4
        self.problems[at] = self.row
        self.problems[at + 1] = self.problem_field - 1
        self.problems[at + 2] = self.problem_start
        self.problems[at + 3] = self.problem_end
        self.problem_count += 1

    def read_row(self, size: int) -> int:
        """Read the located row of this size; a size below zero is null."""
        if size < 0:
            if self.has_required[_ROOT]:
                return _DOUBT
            self.finish_object(_ROOT, self.new_stamp())
            return _READ
        self.is_problem = False
        self.problem_field = _NO_FIELD
        self.scanner.position = self.source.start
        self.scanner.end = self.source.start + size
        self.scanner.is_cut = False
        byte = self.scanner.next_byte()
        if byte != _OBJECT:
            return self.no_object(byte)
        code = self.read_object(_ROOT)
        if code != _READ:
            # A value that ends too early is not JSON, whatever its beginning.
            return _CUT if self.scanner.is_cut and code != _GROW else code
        byte = self.scanner.next_byte()
        if byte != _END:
            return self.unexpected(byte)
        return _READ if self.problem_field == _NO_FIELD else _PROBLEM

    def no_object(self, byte: int) -> int:
        """Classify a row that begins with this byte: some bytes begin other JSON values."""
        if byte in (_LETTER_T, _LETTER_F, _LETTER_N):
            # Some readers accept nan, in any case.
            start = self.scanner.position + 1
            is_nan = start < self.scanner.end and (self.scanner.data[start] | 0x20) == _LETTER_A
            is_known = (byte == _LETTER_N and is_nan) or self.scanner.literal()
            return _DOUBT if is_known else _MALFORMED
        if byte in (_QUOTE, _MINUS, _PLUS, _ARRAY) or _ZERO <= byte <= _NINE:
            return _DOUBT
        return _DOUBT if byte in (0x49, 0x69, 0x4E) else self.unexpected(byte)

    def unexpected(self, byte: int) -> int:
        """Classify a row that has this byte where JSON allows none."""
        # Some readers accept comments, and a comma before a closing bracket.
        return _DOUBT if byte in (0, _SLASH, _OBJECT_END) else _MALFORMED

    def new_stamp(self) -> int:
        """Begin an object: fields that it fills have its stamp."""
        self.stamp += 1
        self.columns.stamp = self.stamp
        return self.stamp

    def read_object(self, parent: int) -> int:
        """Read the object at the scanner's position into the fields of `parent`."""
        outer = self.columns.stamp
        stamp = self.new_stamp()
        self.scanner.position += 1
        byte = self.scanner.next_byte()
        self.previous = _ROOT
        self.expected = self.firsts[parent]
        while byte == _QUOTE:
            code = self.read_member(parent)
            if code != _READ:
                return code
            byte = self.scanner.next_byte()
            if byte != _COMMA:
                break
            self.scanner.position += 1
            byte = self.scanner.next_byte()
            if byte != _QUOTE:
                return self.unexpected(byte)
        if byte != _OBJECT_END:
            return self.unexpected(byte)
        self.scanner.position += 1
        self.finish_object(parent, stamp)
        self.columns.stamp = outer
        return _READ

    def finish_object(self, parent: int, stamp: int) -> None:
        """Set unfilled fields to null; a required one is a problem."""
        field = self.target.first_children[parent]
        end = field + self.target.child_counts[parent]
        while field < end:
            if self.columns.filled[field] != stamp:
                self.target.write_null(field)
                if self.is_required[field]:
                    self.note_missing(parent, field)
            field += 1

    def note_missing(self, parent: int, field: int) -> None:
        """Note a required field without a value."""
        if parent == _ROOT:
            self.note_problem(field, -1)
        else:
            self.is_problem = True

    def read_list(self, field: int) -> int:
        """Read the array at the scanner's position."""
        level = self.inner_levels[field]
        child = self.target.first_children[field]
        self.scanner.position += 1
        byte = self.scanner.next_byte()
        while byte != _ARRAY_END:
            if not self.target.has_room(level):
                return _GROW
            code = self.read_item(child, byte)
            if code != _READ:
                return code
            self.target.add_entry(level)
            byte = self.scanner.next_byte()
            if byte == _COMMA:
                self.scanner.position += 1
                byte = self.scanner.next_byte()
                if byte == _ARRAY_END:
                    # Some readers accept a comma before a closing bracket.
                    return _DOUBT
            elif byte != _ARRAY_END:
                return self.unexpected(byte)
        self.scanner.position += 1
        self.target.end_list(field, level)
        return self.columns.fill(field)

    def read_item(self, child: int, byte: int) -> int:
        """Read an item of an array, or one of a map."""
        if byte == _LETTER_N:
            if not self.scanner.literal():
                return _DOUBT
            self.target.write_null(child)
            return _READ
        code = self.read_value(child, byte)
        if code == _PROBLEM:
            self.is_problem = True
            self.target.write_null(child)
            return _READ
        return code

    def read_map(self, field: int) -> int:
        """Read the object at the scanner's position as keys and items."""
        level = self.inner_levels[field]
        first = self.target.lengths[level]
        self.scanner.position += 1
        byte = self.scanner.next_byte()
        while byte == _QUOTE:
            if not self.target.has_room(level):
                return _GROW
            code = self.read_map_entry(field, first, level)
            if code != _READ:
                return code
            self.target.add_entry(level)
            byte = self.scanner.next_byte()
            if byte != _COMMA:
                break
            self.scanner.position += 1
            byte = self.scanner.next_byte()
            if byte != _QUOTE:
                return self.unexpected(byte)
        if byte != _OBJECT_END:
            return self.unexpected(byte)
        self.scanner.position += 1
        self.target.end_list(field, level)
        return self.columns.fill(field)

    def read_map_entry(self, field: int, first: int, level: int) -> int:
        """Read a key at the current position, and its item."""
        key = self.target.first_children[field]
        if not self.scanner.text():
            return _DOUBT
        code = self.columns.put_bytes(key, self.scanner.text_start, self.scanner.text_end)
        if code != _READ:
            return code
        last = self.target.lengths[level]
        if last - first >= _KEYS_MAX:
            return _DOUBT
        while first < last:
            if self.target.is_same_text(key, first, last):
                return _DOUBT
            first += 1
        byte = self.scanner.next_byte()
        if byte != _COLON:
            return self.unexpected(byte)
        self.scanner.position += 1
        return self.read_item(key + 1, self.scanner.next_byte())

    def read_member(self, parent: int) -> int:
        """Read a key at the current position, and its value."""
        field = self.names.field_of_key(parent, self.expected)
        if field == _UNREADABLE:
            return _DOUBT
        byte = self.scanner.next_byte()
        if byte != _COLON:
            return self.unexpected(byte)
        self.scanner.position += 1
        if field == _UNKNOWN:
            return _READ if self.scanner.skip() else _DOUBT
        if field != self.expected:
            self.learn(parent, self.previous, field)
        code = self.read_field(parent, field)
        # Set after the value, which may be an object with its own members.
        self.previous = field
        self.expected = self.follows[field]
        return code

    def learn(self, parent: int, previous: int, field: int) -> None:
        """Expect the field at this place in later rows."""
        if previous == _ROOT:
            self.firsts[parent] = field
        else:
            self.follows[previous] = field

    def read_field(self, parent: int, field: int) -> int:
        """Read the value of a field; the problem of the first column is kept."""
        if self.seen[field] == self.columns.stamp:
            return _DOUBT
        self.seen[field] = self.columns.stamp
        byte = self.scanner.next_byte()
        start = self.scanner.position
        code = self.read_value(field, byte)
        if code == _PROBLEM:
            self.is_problem = True
            code = _READ
        if parent == _ROOT and self.is_problem and code == _READ:
            self.is_problem = False
            self.note_problem(field, start)
        return code

    def read_value(self, field: int, byte: int) -> int:
        """Read the value that begins with this byte at the scanner's position."""
        start = self.scanner.position
        if byte == _QUOTE:
            return self.columns.put_text(field) if self.scanner.text() else _DOUBT
        if byte == _MINUS or _ZERO <= byte <= _NINE:
            return self.columns.put_number(field, start) if self.scanner.number() else _DOUBT
        if byte == _LETTER_N:
            return _READ if self.scanner.literal() else _DOUBT
        if byte in (_LETTER_T, _LETTER_F):
            if not self.scanner.literal():
                return _DOUBT
            return self.columns.put_literal(field, byte, start)
        kind = self.columns.kinds[field]
        if byte == _OBJECT and kind == _STRUCT:
            self.columns.fill(field)
            return self.read_object(field)
        if byte == _ARRAY and kind == _LIST:
            return self.read_list(field)
        if byte == _OBJECT and kind == _MAP:
            return self.read_map(field)
        if self.columns.kinds[field] == _STRING or not self.scanner.skip():
            return _DOUBT
        return _PROBLEM

    def note_problem(self, field: int, start: int) -> None:
        """Keep the problem if it is that of the first column; below zero: a missing value."""
        if field < self.problem_field:
            self.problem_field = field
            self.problem_start = start
            self.problem_end = self.scanner.position


def _numbers(count: int) -> memoryview:
    return memoryview(bytearray(8 * count)).cast("q")
