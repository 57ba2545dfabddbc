"""Source of a decoder for one version of one message, generated from its `StructShape`.

The source is one function `decode(buffer, position, end, budget)` without calls between
structures: fixed-size fields that follow each other are one `struct` call, arrays are loops. It
returns our message (fields that the version lacks keep their defaults) and raises only the errors
in `wire.WIRE_ERRORS`. `budget` bounds the array elements of the whole body; it is charged before an
array's first object is created. Payloads called records are slices of the buffer, never copies.

kio's own reader is NOT used for a peer's bytes: it allocates the size that an array's length
announces (14 bytes ask for 16 GiB, and the process aborts), refuses unknown tags and accepts null
for an array that cannot be null. This file reads kio's schemas, and the tests compare with its
codec.
"""

import struct
from collections.abc import Mapping
from typing import Final

from penstock.core.limits import TAGGED_FIELDS_MAX
from penstock.protocol import wire
from penstock.protocol.schema import FieldShape, StructShape, element_bytes_min

FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "error_code": "h",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The `struct` letter of each fixed-size kind; `?` reads any byte but zero as true, as Kafka."""

CONVERSIONS: Final = {"error_code": "error_code({})", "uuid": "uuid_or_none({})"}
"""The conversion of the unpacked value."""


class DecoderSource:
    """Writes one decoder; `text` is its source and `namespace` the names that it uses."""

    def __init__(self, shape: StructShape, classes: Mapping[str, type]) -> None:
        self._lines: list[str] = []
        self._depth = 1
        self._variables = 0
        self._flexible = shape.flexible
        self.namespace: dict[str, object] = {
            "read_varint": wire.read_unsigned_varint,
            "skip_tags": wire.skip_tags,
            "read_tag": wire.read_tag,
            "check_tag_size": wire.check_tag_size,
            "null_refused": wire.null_refused,
            "length_refused": wire.length_refused,
            "uuid_or_none": wire.uuid_or_none,
            "error_code": wire.error_code,
            "unpack_array": struct.unpack_from,
            **{f"class_{name}": message_class for name, message_class in classes.items()},
        }
        self._add("def decode(buffer, position, end, budget):", depth=0)
        result = self._struct(shape)
        self._add(f"return {result}")
        self.text = "\n".join(self._lines) + "\n"

    def compile(self) -> object:
        """The function itself."""
        exec(self.text, self.namespace)  # noqa: S102 - the source is ours, made from schemas
        return self.namespace["decode"]

    def _add(self, line: str, depth: int | None = None) -> None:
        self._lines.append("    " * (self._depth if depth is None else depth) + line)

    def _variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"

    def _unpacker(self, letters: str) -> str:
        name = "unpack_" + letters.replace("?", "o")
        self.namespace[name] = struct.Struct(">" + letters).unpack_from
        return name

    def _struct(self, shape: StructShape) -> str:
        """Read a structure; return the expression that builds it."""
        values = self._fixed_runs(shape.positional())
        if shape.flexible:
            values |= self._tags(shape)
        arguments = ", ".join(f"{name}={value}" for name, value in values.items())
        return f"class_{shape.name}({arguments})"

    def _fixed_runs(self, fields: list[FieldShape]) -> dict[str, str]:
        """Read fields in order, those of fixed size together."""
        values: dict[str, str] = {}
        run: list[FieldShape] = []
        for field in fields:
            if field.kind in FORMATS and not field.is_array:
                run.append(field)
                continue
            self._fixed(run, values)
            run = []
            values[field.name] = self._value(field)
        self._fixed(run, values)
        return values

    def _fixed(self, run: list[FieldShape], values: dict[str, str]) -> None:
        if not run:
            return
        letters = "".join(FORMATS[field.kind] for field in run)
        names = [self._variable() for _ in run]
        targets = ", ".join(names) + ("," if len(names) == 1 else "")
        self._add(f"{targets} = {self._unpacker(letters)}(buffer, position)")
        self._add(f"position += {struct.calcsize('>' + letters)}")
        for name, field in zip(names, run, strict=True):
            values[field.name] = CONVERSIONS.get(field.kind, "{}").format(name)

    def _value(self, field: FieldShape) -> str:
        """Read one field of any kind; return the variable that holds it."""
        if field.is_array:
            return self._array(field)
        if field.struct is not None:
            return self._nested(field, field.struct)
        if field.kind in FORMATS:
            values: dict[str, str] = {}
            self._fixed([field], values)
            return values[field.name]
        return self._payload(field)

    def _nested(self, field: FieldShape, shape: StructShape) -> str:
        result = self._variable()
        if not field.nullable:
            self._add(f"{result} = {self._struct(shape)}")
            return result
        self._add(f"{result} = None")
        self._add("position += 1")
        self._add("if buffer[position - 1] < 128:")
        self._depth += 1
        self._add(f"{result} = {self._struct(shape)}")
        self._depth -= 1
        return result

    def _length(self, field: FieldShape, length: str, letter: str) -> None:
        """Read a length; afterwards it is -1 for null and never less."""
        if self._flexible:
            self._add(f"{length} = buffer[position]")
            self._add("position += 1")
            self._add(f"if {length} > 127:")
            self._add("    if buffer[position] < 128:")
            self._add(f"        {length} += (buffer[position] << 7) - 128")
            self._add("        position += 1")
            self._add("    else:")
            self._add(f"        {length}, position = read_varint(buffer, position - 1)")
            self._add(f"{length} -= 1")
        else:
            self._add(f"{length}, = {self._unpacker(letter)}(buffer, position)")
            self._add(f"position += {struct.calcsize('>' + letter)}")
            self._add(f"if {length} < -1:")
            self._add(f"    length_refused({field.name!r})")
        if not field.nullable:
            self._add(f"if {length} < 0:")
            self._add(f"    null_refused({field.name!r})")

    def _payload(self, field: FieldShape) -> str:
        """Read a string, bytes or records."""
        result, length = self._variable(), self._variable()
        self._length(field, length, "h" if field.kind == "string" else "i")
        if field.nullable:
            self._add(f"if {length} < 0:")
            self._add(f"    {result} = None")
            self._add("else:")
            self._depth += 1
        bound = f"{length} > end - position"
        if field.kind == "string" and self._flexible:
            bound += f" or {length} > {wire.STRING_BYTES_MAX}"
        self._add(f"if {bound}:")
        self._add(f"    length_refused({field.name!r})")
        piece = f"buffer[position:position + {length}]"
        kinds = {"string": f'str({piece}, "utf-8")', "bytes": f"bytes({piece})", "records": piece}
        self._add(f"{result} = {kinds[field.kind]}")
        self._add(f"position += {length}")
        if field.nullable:
            self._depth -= 1
        return result

    def _array(self, field: FieldShape) -> str:
        result, length = self._variable(), self._variable()
        self._length(field, length, "i")
        if field.nullable:
            self._add(f"if {length} < 0:")
            self._add(f"    {result} = None")
            self._add("else:")
            self._depth += 1
        bytes_min = element_bytes_min(field, flexible=self._flexible)
        assert bytes_min > 0
        self._add(f"budget -= {length}")
        self._add(f"if budget < 0 or {length} * {bytes_min} > end - position:")
        self._add(f"    length_refused({field.name!r})")
        self._elements(field, result, length)
        if field.nullable:
            self._depth -= 1
        return result

    def _elements(self, field: FieldShape, result: str, length: str) -> None:
        letter = FORMATS.get(field.kind)
        if letter is not None and field.kind not in CONVERSIONS:
            size = struct.calcsize(">" + letter)
            self._add(f'{result} = unpack_array(f">{{{length}}}{letter}", buffer, position)')
            self._add(f"position += {size} * {length}")
            return
        items = self._variable()
        self._add(f"{items} = []")
        self._add(f"for _ in range({length}):")
        self._depth += 1
        if field.struct is not None:
            item = self._struct(field.struct)
        else:
            item = self._value(field.element())
        self._add(f"{items}.append({item})")
        self._depth -= 1
        self._add(f"{result} = tuple({items})")

    def _tags(self, shape: StructShape) -> dict[str, str]:
        """Read the tagged fields; absent ones have the class's own defaults."""
        count = self._variable()
        self._add(f"{count} = buffer[position]")
        self._add("position += 1")
        tagged = shape.tagged()
        holders = {field.name: self._variable() for field in tagged}
        for field in tagged:
            default = f"default_{shape.name}_{field.name}"
            self.namespace[default] = self._class_default(shape, field)
            self._add(f"{holders[field.name]} = {default}")
        self._add(f"if {count}:")
        self._depth += 1
        self._add(f"if {count} > 127:")
        self._add(f"    {count}, position = read_varint(buffer, position - 1)")
        if tagged:
            self._known_tags(tagged, holders, count)
        else:
            self._add(f"position = skip_tags(buffer, position, end, {count})")
        self._depth -= 1
        return holders

    def _known_tags(self, tagged: list[FieldShape], holders: dict[str, str], count: str) -> None:
        tag, size, stop = self._variable(), self._variable(), self._variable()
        self._add(f"if {count} > {TAGGED_FIELDS_MAX}:")
        self._add('    length_refused("tagged fields")')
        self._add(f"{tag} = -1")
        self._add(f"for _ in range({count}):")
        self._depth += 1
        self._add(f"{tag}, {size}, position = read_tag(buffer, position, end, {tag})")
        self._add(f"{stop} = position + {size}")
        for index, field in enumerate(tagged):
            self._add(f"{'if' if index == 0 else 'elif'} {tag} == {field.tag}:")
            self._depth += 1
            self._add(f"{holders[field.name]} = {self._value(field)}")
            self._depth -= 1
        self._add("else:")
        self._add(f"    position = {stop}")
        self._add(f"check_tag_size(position, {stop})")
        self._depth -= 1

    def _class_default(self, shape: StructShape, field: FieldShape) -> object:
        message_class = self.namespace[f"class_{shape.name}"]
        fields = getattr(message_class, "__dataclass_fields__")  # noqa: B009 - typed as object
        return fields[field.name].default
