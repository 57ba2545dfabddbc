"""Source of an encoder for one version of one message, generated from its `StructShape`.

The source is one function `encode(message, append)` that appends buffers in order; joined they are
the body. Records are appended uncopied. A field of ours that the version lacks is dropped when it
has its default or is ignorable (`ignorable_fields`), and is a `LostFieldError` otherwise; so is
None where the version has no null. Both are bugs of ours, never the peer's.

This file does NOT decide which fields may be dropped, and does not know kio.
"""

import dataclasses
import struct
import typing
from collections.abc import Mapping
from types import NoneType
from typing import Final

from penstock.protocol import wire
from penstock.protocol.decoder_source import FORMATS
from penstock.protocol.ignorable_fields import IGNORABLE_FIELDS
from penstock.protocol.schema import FieldShape, StructShape

Buffer = bytes | bytearray | memoryview
"""A part of an encoded message."""


class LostFieldError(AssertionError):
    """A value that the version being written has no field for: a bug of ours."""


def lost(where: str, version: int) -> None:
    """Refuse to drop a value that is not the default."""
    raise LostFieldError(f"{where} cannot be written in version {version}")


NO_TAGS: Final = b"\x00"
"""The tag section of a structure without tagged fields."""

PACK_CONVERSIONS: Final = {"uuid": "uuid_bytes({})"}
"""The expression that is packed instead of the value itself."""


class EncoderSource:
    """Writes one encoder; `text` is its source and `namespace` the names that it uses."""

    def __init__(self, shape: StructShape, classes: Mapping[str, type]) -> None:
        self._lines: list[str] = []
        self._depth = 1
        self._variables = 0
        self._flexible = shape.flexible
        self._version = shape.version
        self._message = shape.name
        self._classes = classes
        self.namespace: dict[str, object] = {
            "varint": wire.unsigned_varint,
            "compact_string": wire.compact_string,
            "uuid_bytes": wire.uuid_bytes,
            "lost": lost,
            "pack_array": struct.pack,
        }
        self._add("def encode(message, append):", depth=0)
        self._struct(shape, "message", "append")
        self._add("return None")
        self.text = "\n".join(self._lines) + "\n"

    def compile(self) -> object:
        """The function itself."""
        exec(self.text, self.namespace)  # noqa: S102 - the source is ours, made from schemas
        return self.namespace["encode"]

    def _add(self, line: str, depth: int | None = None) -> None:
        self._lines.append("    " * (self._depth if depth is None else depth) + line)

    def _variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"

    def _packer(self, letters: str) -> str:
        name = "pack_" + letters.replace("?", "o")
        self.namespace[name] = struct.Struct(">" + letters).pack
        return name

    def _struct(self, shape: StructShape, holder: str, append: str) -> None:
        self._losses(shape, holder)
        run: list[FieldShape] = []
        for field in shape.positional():
            if field.kind in FORMATS and not field.is_array:
                run.append(field)
                continue
            self._fixed(run, holder, append)
            run = []
            self._value(field, self._load(field, holder), append)
        self._fixed(run, holder, append)
        if shape.flexible:
            self._tags(shape, holder, append)

    def _losses(self, shape: StructShape, holder: str) -> None:
        """Refuse values that this version has no field for."""
        ignorable = IGNORABLE_FIELDS.get(f"{self._message}.{shape.name}", frozenset())
        present = {field.name: field for field in shape.fields}
        for ours in dataclasses.fields(self._classes[shape.name]):
            where = f"{shape.name}.{ours.name}"
            field = present.get(ours.name)
            if field is None and ours.name not in ignorable:
                assert ours.default is not dataclasses.MISSING
                default = f"default_{shape.name}_{ours.name}"
                self.namespace[default] = ours.default
                value = f"{holder}.{ours.name}"
                self._add(f"if {value} is not {default} and {value} != {default}:")
                self._add(f"    lost({where!r}, {self._version})")
            elif field is not None and self._null_is_lost(ours.type, field):
                self._add(f"if {holder}.{ours.name} is None:")
                self._add(f"    lost({where!r}, {self._version})")

    @staticmethod
    def _null_is_lost(annotation: object, field: FieldShape) -> bool:
        may_be_none = NoneType in typing.get_args(annotation)
        return may_be_none and not field.nullable and (field.is_array or field.kind != "uuid")

    def _load(self, field: FieldShape, holder: str) -> str:
        value = self._variable()
        self._add(f"{value} = {holder}.{field.name}")
        return value

    def _fixed(self, run: list[FieldShape], holder: str, append: str) -> None:
        if run:
            values = [(field, f"{holder}.{field.name}") for field in run]
            self._pack(values, append)

    def _pack(self, values: list[tuple[FieldShape, str]], append: str) -> None:
        letters = "".join(FORMATS[field.kind] for field, _ in values)
        packed = [PACK_CONVERSIONS.get(f.kind, "{}").format(value) for f, value in values]
        self._add(f"{append}({self._packer(letters)}({', '.join(packed)}))")

    def _value(self, field: FieldShape, value: str, append: str) -> None:
        """Write one field of any kind."""
        if field.kind in FORMATS and not field.is_array:
            self._pack([(field, value)], append)
            return
        if field.nullable:
            self._add(f"if {value} is None:")
            self._add(f"    {append}({self._null(field)!r})")
            self._add("else:")
            self._depth += 1
        if field.is_array:
            self._array(field, value, append)
        elif field.struct is not None:
            if field.nullable:
                self._add(f"{append}({struct.pack('>b', 1)!r})")
            self._struct(field.struct, value, append)
        else:
            self._payload(field, value, append)
        if field.nullable:
            self._depth -= 1

    def _null(self, field: FieldShape) -> bytes:
        if field.struct is not None and not field.is_array:
            return struct.pack(">b", -1)
        if self._flexible:
            return b"\x00"
        is_string = field.kind == "string" and not field.is_array
        return struct.pack(">h" if is_string else ">i", -1)

    def _payload(self, field: FieldShape, value: str, append: str) -> None:
        if field.kind == "string" and self._flexible:
            length, encoded = self._variable(), self._variable()
            self._add(f"{length}, {encoded} = compact_string({value})")
            self._add(f"{append}({length})")
            self._add(f"{append}({encoded})")
            return
        if field.kind == "string":
            encoded = self._variable()
            self._add(f"{encoded} = {value}.encode()")
            self._add(f"{append}({self._packer('h')}(len({encoded})))")
            self._add(f"{append}({encoded})")
            return
        self._length(value, append)
        self._add(f"{append}({value})")

    def _length(self, value: str, append: str) -> None:
        if self._flexible:
            self._add(f"{append}(varint(len({value}) + 1))")
        else:
            self._add(f"{append}({self._packer('i')}(len({value})))")

    def _array(self, field: FieldShape, value: str, append: str) -> None:
        self._length(value, append)
        letter = FORMATS.get(field.kind)
        if letter is not None and field.kind not in PACK_CONVERSIONS:
            self._add(f'{append}(pack_array(f">{{len({value})}}{letter}", *{value}))')
            return
        item = self._variable()
        self._add(f"for {item} in {value}:")
        self._depth += 1
        if field.struct is not None:
            self._struct(field.struct, item, append)
        else:
            self._value(field.element(), item, append)
        self._depth -= 1

    def _tags(self, shape: StructShape, holder: str, append: str) -> None:
        """Write the tagged fields that have another value than their default."""
        tagged = shape.tagged()
        if not tagged:
            self._add(f"{append}({NO_TAGS!r})")
            return
        defaults = {f.name: f.default for f in dataclasses.fields(self._classes[shape.name])}
        values = [(field, self._load(field, holder)) for field in tagged]
        for field, _ in values:
            self.namespace[f"default_{shape.name}_{field.name}"] = defaults[field.name]
        # Unset fields hold the default object of the class: most messages end here.
        untouched = [f"{value} is default_{shape.name}_{field.name}" for field, value in values]
        self._add(f"if {' and '.join(untouched)}:")
        self._add(f"    {append}({NO_TAGS!r})")
        self._add("else:")
        self._depth += 1
        self._present_tags(shape, values, append)
        self._depth -= 1

    def _present_tags(
        self, shape: StructShape, values: list[tuple[FieldShape, str]], append: str
    ) -> None:
        count, parts = self._variable(), self._variable()
        self._add(f"{count} = 0")
        self._add(f"{parts} = []")
        for field, value in values:
            self._add(f"if {value} != default_{shape.name}_{field.name}:")
            self._depth += 1
            self._add(f"{count} += 1")
            piece, body = self._variable(), self._variable()
            self._add(f"{piece} = []")
            self._value(field, value, f"{piece}.append")
            self._add(f'{body} = b"".join({piece})')
            self._add(f"{parts} += (varint({field.tag}), varint(len({body})), {body})")
            self._depth -= 1
        self._add(f'{append}(varint({count}) + b"".join({parts}))')
