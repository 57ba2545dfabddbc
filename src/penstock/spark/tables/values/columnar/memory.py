"""The memory of a kernel's columns, and the Arrow arrays in it.

Guarantees: no byte is copied from the buffers to Arrow. The rows have their room at once; texts and
the items of lists begin with about the size of the last ones, and grow by `columnar.rooms`, up to
`BYTES_MAX` in all and to the limit of 32-bit offsets. Beyond it `grow` is false, and the row has no
room here. After `release` nothing is left of a batch that failed.

The kernel writes; this module only allocates.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from penstock.spark.tables.values.columnar import columns as kinds
from penstock.spark.tables.values.columnar.column_tree import ColumnNode, ColumnTree
from penstock.spark.tables.values.columnar.columns import ArrowColumns
from penstock.spark.tables.values.columnar.rooms import SIZE_MAX, Rooms

_ALIGNMENT: Final = 64
"""Arrow's recommended alignment of a buffer."""
_TEXT_BYTES_MIN: Final = 4_096
_ITEMS_MIN: Final = 1_024
BYTES_MAX: Final = 1_073_741_824
"""For all texts, and for everything else. A row of small values may have many wide items: each
empty message of Protobuf has all columns of its type."""


class ColumnMemory:
    """The buffers of one tree of columns."""

    def __init__(self, tree: ColumnTree) -> None:
        self._tree = tree
        self._nodes = tree.nodes[1:]
        count = len(tree.nodes)
        self.columns = ArrowColumns(count, tree.levels)
        for node in tree.nodes:
            self.columns.kinds[node.number] = node.kind
            self.columns.field_levels[node.number] = node.level
            if node.children:
                self.columns.first_children[node.number] = node.children[0].number
                self.columns.child_counts[node.number] = len(node.children)
        self._texts_of = [one.number for one in self._nodes if one.kind == kinds.BINARY]
        """The numbers of the columns of texts."""
        self._rows = 0
        self._items = Rooms(range(1, tree.levels), _ITEMS_MIN, self._fixed_size)
        """By level."""
        self._text_rooms = Rooms(self._texts_of, _TEXT_BYTES_MIN, _text_bytes)
        """By the numbers of columns."""
        self._validity_starts = [0] * count
        self._data_starts = [0] * count
        self._text_starts = [0] * count
        self._fixed: pa.Buffer | None = None
        self._texts: pa.Buffer | None = None
        self._is_attached = False

    def attach(self, values: pa.Array) -> None:
        """Allocate new memory for the rows of these values, and for their items and texts."""
        self._fixed = self._texts = None
        self._is_attached = True
        self._rows = len(values)
        self._items.begin(_ITEMS_MIN, BYTES_MAX)
        # Most texts are bytes of the values, so the columns have at least an equal share.
        share = values.nbytes // max(len(self._texts_of), 1)
        self._text_rooms.begin(share + share // 8, BYTES_MAX)
        self._place_fixed()
        self._place_texts()

    def grow(self) -> bool:
        """Enlarge the full level, or else the full texts; return whether there is more room."""
        columns = self.columns
        level, number = columns.full_level, columns.full_field
        columns.full_level = columns.full_field = 0
        if level:
            has_grown = self._items.grow(level, self._items_used, BYTES_MAX)
            if has_grown:
                self._place_fixed()
            return has_grown
        has_grown = self._text_rooms.grow(number, columns.text_size, BYTES_MAX)
        if has_grown:
            self._place_texts()
        return has_grown

    def release(self) -> None:
        """Release the memory; after a failure forget the sizes too, as they may be the reason."""
        if self._is_attached:
            self._items.reset()
            self._text_rooms.reset()
        self._fixed = self._texts = None
        self._is_attached = False

    def _items_used(self, level: int) -> int:
        return self.columns.counted[level]

    def _fixed_size(self, items: Mapping[int, int]) -> int:
        rooms = {0: self._rows, **items}
        return sum(
            _bitmap(rooms[one.level]) + _data_size(one, rooms[one.level]) for one in self._nodes
        )

    def batch(self) -> pa.RecordBatch:
        """Return the counted rows, and release the memory."""
        arrays = [self._array(one) for one in self._tree.row.children]
        self._items.remember(self._items_used)
        self._text_rooms.remember(self.columns.text_size)
        self._fixed = self._texts = None
        self._is_attached = False
        return pa.RecordBatch.from_arrays(arrays, schema=self._tree.schema)

    def _place_fixed(self) -> None:
        """Assign each column its part of one new buffer; keep the counted entries."""
        columns, old, size = self.columns, self._fixed, 0
        rooms = {0: self._rows, **self._items.sizes}
        before = [*self._validity_starts], [*self._data_starts]
        for node in self._nodes:
            self._validity_starts[node.number] = columns.validity_bases[node.number] = size
            size += _aligned(_bitmap(rooms[node.level]))
        validity_size = size
        for node in self._nodes:
            self._data_starts[node.number] = size
            columns.bases[node.number] = size // max(node.width, 1)
            size += _aligned(_data_size(node, rooms[node.level]))
        self._fixed = pa.allocate_buffer(max(size, _ALIGNMENT))
        view = memoryview(self._fixed).cast("B")
        view[:validity_size] = b"\xff" * validity_size
        if old is not None:
            written = memoryview(old).cast("B")
            for node in self._nodes:
                self._keep(node, view, written, (before[0][node.number], before[1][node.number]))
        columns.set_buffer(view)
        for level, room in rooms.items():
            columns.capacities[level] = room

    def _keep(
        self, node: ColumnNode, view: memoryview, written: memoryview, starts: tuple[int, int]
    ) -> None:
        entries = self.columns.counted[node.level]
        for start, old, size in (
            (self._validity_starts[node.number], starts[0], _bitmap(entries)),
            (self._data_starts[node.number], starts[1], _data_size(node, entries)),
        ):
            view[start : start + size] = written[old : old + size]

    def _place_texts(self) -> None:
        """Assign each column of texts its part of one new buffer; keep the written texts."""
        columns, old, size = self.columns, self._texts, 0
        before = [*self._text_starts]
        for number, room in self._text_rooms.sizes.items():
            self._text_starts[number] = columns.text_bases[number] = size
            # The columns write no text beyond its end, so that offsets of 32 bits are enough.
            columns.text_ends[number] = size + min(room, SIZE_MAX)
            size += _aligned(room)
        self._texts = pa.allocate_buffer(max(size, 1))
        view = memoryview(self._texts).cast("B")
        if old is not None:
            written = memoryview(old).cast("B")
            for number in self._texts_of:
                begin, start = self._text_starts[number], before[number]
                used = columns.text_size(number)
                view[begin : begin + used] = written[start : start + used]
        columns.texts = view

    def _array(self, node: ColumnNode) -> pa.Array:
        assert self._fixed is not None, "columns have their memory while rows are read"
        entries = self.columns.counted[node.level]
        # A row that was abandoned may have set the sign, so Arrow counts the nulls.
        nulls = -1 if self.columns.has_nulls[node.number] else 0
        validity = self._fixed.slice(self._validity_starts[node.number], _bitmap(entries))
        buffers = [validity if nulls else None]
        children = [self._array(one) for one in node.children]
        if node.kind != kinds.STRUCT:
            start = self._data_starts[node.number]
            buffers.append(self._fixed.slice(start, _data_size(node, entries)))
        if pa.types.is_map(node.type):
            inner = pa.struct([node.type.key_field, node.type.item_field])
            length = self.columns.counted[node.inner_level]
            children = [pa.Array.from_buffers(inner, length, [None], 0, children=children)]
        if node.kind == kinds.BINARY:
            buffers.append(self._text(node.number))
        return pa.Array.from_buffers(node.type, entries, buffers, nulls, children=children or None)

    def _text(self, number: int) -> pa.Buffer:
        assert self._texts is not None, "texts have their memory while rows are read"
        return self._texts.slice(self._text_starts[number], self.columns.text_size(number))


def _text_bytes(rooms: Mapping[int, int]) -> int:
    return sum(map(_aligned, rooms.values()))


def _data_size(node: ColumnNode, entries: int) -> int:
    """Return the bytes of a column's entries; texts and lists have one offset more."""
    if node.kind == kinds.STRUCT:
        return 0
    if node.kind >= kinds.BINARY:
        return (entries + 1) * node.width
    return entries * node.width or _bitmap(entries)


def _bitmap(entries: int) -> int:
    return (entries + 7) // 8


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
