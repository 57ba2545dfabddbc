"""The memory of a kernel's columns, and the Arrow arrays in it.

Guarantees: no byte is copied from the buffers to Arrow. The rows have their room at once; texts and
the items of lists begin with the size of the last ones, and grow to twice that, up to `BYTES_MAX`
in all and to the limit of 32-bit offsets. Beyond it `grow` is false, and the row has no room here.

The kernel writes; this module only allocates.
"""

from typing import Final

import pyarrow as pa

from penstock.spark.tables.values.columnar import columns as kinds
from penstock.spark.tables.values.columnar.column_tree import ColumnNode, ColumnTree
from penstock.spark.tables.values.columnar.columns import ArrowColumns

_ALIGNMENT: Final = 64
"""Arrow's recommended alignment of a buffer."""
_TEXT_BYTES_MIN: Final = 4_096
_ITEMS_MIN: Final = 1_024
_OFFSET_MAX: Final = 2**31 - 1
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
        self._room = [0] * tree.levels
        """By level: the entries that have room, 0 before the first values."""
        self._validity_starts = [0] * count
        self._data_starts = [0] * count
        self._text_starts = [0] * count
        self._text_sizes = [_TEXT_BYTES_MIN] * count
        self._fixed: pa.Buffer | None = None
        self._texts: pa.Buffer | None = None

    def attach(self, rows: int) -> None:
        """Allocate new memory for `rows` rows of all columns, and for items and texts."""
        self._room[0] = rows
        for level in range(1, self._tree.levels):
            self._room[level] = max(self._room[level], _ITEMS_MIN)
        self._place_fixed()
        self._place_texts()

    def grow(self) -> bool:
        """Enlarge the full level, or else the full texts; return whether there is more room."""
        columns = self.columns
        level, number = columns.full_level, columns.full_field
        columns.full_level = columns.full_field = 0
        if level:
            self._room[level] *= 2
            if self._fixed_size() > BYTES_MAX or self._room[level] > _OFFSET_MAX:
                self._room[level] //= 2
                return False
            self._place_fixed()
            return True
        size = self._text_sizes[number]
        if size >= _OFFSET_MAX or sum(self._text_sizes) + size > BYTES_MAX:
            return False
        self._text_sizes[number] = min(2 * size, _OFFSET_MAX)
        self._place_texts()
        return True

    def _fixed_size(self) -> int:
        return sum(
            _bitmap(self._room[one.level]) + _data_size(one, self._room[one.level])
            for one in self._nodes
        )

    def batch(self) -> pa.RecordBatch:
        """Return the counted rows, and release the memory."""
        arrays = [self._array(one) for one in self._tree.row.children]
        for node in self._nodes:
            if node.inner_level:
                # Start the next items with slightly more than the number of these.
                used = self.columns.counted[node.inner_level]
                self._room[node.inner_level] = max(used + used // 8, _ITEMS_MIN)
        self._fixed = self._texts = None
        return pa.RecordBatch.from_arrays(arrays, schema=self._tree.schema)

    def _place_fixed(self) -> None:
        """Assign each column its part of one new buffer; keep the counted entries."""
        columns, old, size = self.columns, self._fixed, 0
        before = [*self._validity_starts], [*self._data_starts]
        for node in self._nodes:
            self._validity_starts[node.number] = columns.validity_bases[node.number] = size
            size += _aligned(_bitmap(self._room[node.level]))
        validity_size = size
        for node in self._nodes:
            self._data_starts[node.number] = size
            columns.bases[node.number] = size // max(node.width, 1)
            size += _aligned(_data_size(node, self._room[node.level]))
        self._fixed = pa.allocate_buffer(max(size, _ALIGNMENT))
        view = memoryview(self._fixed).cast("B")
        view[:validity_size] = b"\xff" * validity_size
        if old is not None:
            written = memoryview(old).cast("B")
            for node in self._nodes:
                self._keep(node, view, written, (before[0][node.number], before[1][node.number]))
        columns.set_buffer(view)
        for level, room in enumerate(self._room):
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
        texts = [one.number for one in self._nodes if one.kind == kinds.BINARY]
        before = [(one, self._text_starts[one], columns.text_ends[one]) for one in texts]
        for number in texts:
            self._text_starts[number] = columns.text_bases[number] = size
            columns.text_ends[number] = size + self._text_sizes[number]
            size += _aligned(self._text_sizes[number])
        self._texts = pa.allocate_buffer(max(size, 1))
        view = memoryview(self._texts).cast("B")
        if old is not None:
            written = memoryview(old).cast("B")
            for number, start, end in before:
                begin = self._text_starts[number]
                view[begin : begin + end - start] = written[start:end]
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
        used = self.columns.text_size(number)
        # Start the next texts with slightly more than the size of these.
        self._text_sizes[number] = max(used + used // 8, _TEXT_BYTES_MIN)
        return self._texts.slice(self._text_starts[number], used)


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
