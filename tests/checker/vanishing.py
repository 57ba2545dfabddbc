"""`Vanishing`: which values may be missing from a log, because they were removed.

Operations that remove say so in the history, from the moment they are invoked:

- `delete-records`: everything below the offsets of its `Cut`;
- `retain`: while it runs, retention takes everything that was written before its end;
- `compact`: from its beginning on, a value whose record key has a later value in its partition;
- `recreate`: the topic is deleted and created again: everything written before its end.

One that failed removed nothing. One whose end is unknown may continue for ever. The last value of a
record key never vanishes by compaction. The key of a record is `record_key` of its value.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

from tests.checker.history import Completion, Cut

RECORD_KEYS = 41
"""Few enough that compaction finds something, and enough that some keys are not written again at
the end of a run: only the loss of a key's last value shows. Prime to everything that workers
count."""


def record_key(value: int) -> int:
    """The key with which a worker sends a value, where records have keys."""
    return value % RECORD_KEYS


class Vanishing:
    """The removals of one history."""

    def __init__(self, completions: Sequence[Completion]) -> None:
        self.cuts: dict[int, list[tuple[int, float]]] = defaultdict(list)
        """Of each key: offsets below which records were deleted, and when that was certain."""
        self._retained_ns: dict[int, float] = {}
        self.compacted: set[int] = set()
        self.recreated: dict[int, list[tuple[int, float]]] = defaultdict(list)
        """Of each key: when its topic was deleted first, and when it was there again."""
        for one in completions:
            if one.op.type != "fail":
                self._note(one)

    def _note(self, one: Completion) -> None:
        begun_ns, op = one.invoked.time_ns, one.op
        ended_ns = op.time_ns if op.type == "ok" else math.inf
        for action in op.actions:
            if isinstance(action, Cut):
                for key, offset in action.positions.items():
                    self.cuts[key].append((offset, ended_ns))
        for key in op.keys:
            if op.name == "retain":
                self._retained_ns[key] = max(ended_ns, self._retained_ns.get(key, 0))
            elif op.name == "compact":
                self.compacted.add(key)
            elif op.name == "recreate":
                self.recreated[key].append((begun_ns, ended_ns))

    def is_cut(self, key: int, offset: int | None) -> bool:
        """Whether DeleteRecords may have removed this offset."""
        return offset is not None and any(offset < limit for limit, _ in self.cuts.get(key, ()))

    def is_retained_out(self, key: int, written_ns: int) -> bool:
        """Whether retention may have removed what was sent at this moment."""
        return written_ns < self._retained_ns.get(key, 0)

    def is_of_deleted_topic(self, key: int, written_ns: int) -> bool:
        """Whether what was sent at this moment may have gone with its topic."""
        return any(written_ns < ended_ns for _, ended_ns in self.recreated.get(key, ()))
