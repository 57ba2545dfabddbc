"""Rule 11: information does not flow in a circle.

Operations are the vertices. Edges: `wr` from the writer of a value to each reader of it; `ww`
between the writers of neighbours in a key (only when asked for: transactions are not isolated from
each other's writes); `process` from an operation to the next of its process; `realtime` from an
operation to those that were invoked after it had completed. Each strongly connected component with
more than one vertex holds a circle. It is named by the weakest set of edges that closes it: `G0`
needs only ww, `G1c` also wr, and `-process` or `-realtime` says that such edges were needed.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from tests.checker.anomaly import Anomaly
from tests.checker.derived import Derived
from tests.checker.history import Op

Graph = dict[int, dict[int, str]]
"""Vertex → vertex → the kind of the strongest edge between them."""

LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("G0", frozenset({"ww"})),
    ("G1c", frozenset({"ww", "wr"})),
    ("G0-process", frozenset({"ww", "process"})),
    ("G1c-process", frozenset({"ww", "wr", "process"})),
    ("G0-realtime", frozenset({"ww", "process", "realtime"})),
    ("G1c-realtime", frozenset({"ww", "wr", "process", "realtime"})),
)


class _Edges:
    """All edges by kind."""

    def __init__(self) -> None:
        self.by_kind: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))

    def add(self, kind: str, source: int, target: int) -> None:
        if source != target:
            self.by_kind[kind][source].add(target)

    def graph(self, kinds: frozenset[str]) -> Graph:
        graph: Graph = {}
        # The strong kinds last: a report names them where two vertices have several edges.
        for kind in ("realtime", "process", "ww", "wr"):
            if kind in kinds:
                for source, targets in self.by_kind[kind].items():
                    graph.setdefault(source, {}).update(dict.fromkeys(targets, kind))
        return graph


def _data_edges(edges: _Edges, derived: Derived, number: Mapping[Op, int], with_ww: bool) -> None:
    for (key, value), readers in derived.readers_of.items():
        writer = derived.writer_of.get((key, value))
        if writer is not None and writer in number:
            for reader in readers:
                if reader in number:
                    edges.add("wr", number[writer], number[reader])
    if not with_ww:
        return
    for key, order in derived.orders.items():
        writers = [derived.writer_of.get((key, value)) for value in order.by_index]
        for earlier, later in pairwise(writers):
            if earlier is not None and later is not None and {earlier, later} <= number.keys():
                edges.add("ww", number[earlier], number[later])


def _time_edges(edges: _Edges, derived: Derived, number: Mapping[Op, int]) -> None:
    last_of_process: dict[int, int] = {}
    events: list[tuple[int, int, int]] = []
    for one in derived.completions:
        if one.op not in number:
            continue
        vertex = number[one.op]
        if one.op.process in last_of_process:
            edges.add("process", last_of_process[one.op.process], vertex)
        last_of_process[one.op.process] = vertex
        events.append((one.invoked.time_ns, 0, vertex))
        if one.op.type == "ok":
            # An operation without a known end is before nothing.
            events.append((one.op.time_ns, 1, vertex))
    newest: set[int] = set()
    before: dict[int, set[int]] = {}
    for _, is_end, vertex in sorted(events):
        if is_end:
            newest = (newest - before[vertex]) | {vertex}
        else:
            before[vertex] = set(newest)
            for earlier in newest:
                edges.add("realtime", earlier, vertex)


def components(graph: Mapping[int, Mapping[int, str]]) -> list[list[int]]:
    """Strongly connected components with more than one vertex (Tarjan, without recursion)."""
    indexes: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found = []
    for root in graph:
        if root in indexes:
            continue
        work: list[tuple[int, Iterator[int]]] = []
        _enter(root, graph, indexes, lowest, stack, on_stack, work)
        while work:
            vertex, targets = work[-1]
            for target in targets:
                if target not in indexes:
                    _enter(target, graph, indexes, lowest, stack, on_stack, work)
                    break
                if target in on_stack:
                    lowest[vertex] = min(lowest[vertex], indexes[target])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[vertex])
                if lowest[vertex] == indexes[vertex]:
                    found.append(_leave(vertex, stack, on_stack))
    return [component for component in found if len(component) > 1]


def _enter(
    vertex: int,
    graph: Mapping[int, Mapping[int, str]],
    indexes: dict[int, int],
    lowest: dict[int, int],
    stack: list[int],
    on_stack: set[int],
    work: list[tuple[int, Iterator[int]]],
) -> None:
    indexes[vertex] = lowest[vertex] = len(indexes)
    stack.append(vertex)
    on_stack.add(vertex)
    work.append((vertex, iter(graph.get(vertex, {}))))


def _leave(vertex: int, stack: list[int], on_stack: set[int]) -> list[int]:
    component = []
    while True:
        top = stack.pop()
        on_stack.discard(top)
        component.append(top)
        if top == vertex:
            return component


def _shortest_circle(graph: Graph, component: Sequence[int], kind: str) -> list[int]:
    """A shortest circle of the component that starts with an edge of this kind."""
    inside = set(component)
    best: list[int] = []
    for source in component:
        for target, found in graph.get(source, {}).items():
            if found == kind and target in inside:
                path = _path(graph, inside, target, source)
                if not best or len(path) < len(best):
                    best = path
                if len(best) <= 2:
                    return best
    return best


def _path(graph: Graph, inside: set[int], source: int, target: int) -> list[int]:
    came_from = {source: source}
    queue = deque([source])
    while queue:
        vertex = queue.popleft()
        if vertex == target:
            break
        for following in graph.get(vertex, {}):
            if following in inside and following not in came_from:
                came_from[following] = vertex
                queue.append(following)
    path = [target]
    while path[-1] != source:
        path.append(came_from[path[-1]])
    return path[::-1]


def cycles(derived: Derived, *, with_ww: bool = False) -> Iterator[Anomaly]:
    """Every component once, by the weakest level that closes it with a kind of edge of its own."""
    ops = [
        op for op in derived.ops if op.type != "fail" and (derived.reads[op] or derived.writes[op])
    ]
    number = {op: place for place, op in enumerate(ops)}
    edges = _Edges()
    _data_edges(edges, derived, number, with_ww)
    _time_edges(edges, derived, number)
    known: dict[str, list[set[int]]] = {"G0": [], "G1c": []}
    for name, kinds in LEVELS:
        if not with_ww and name.startswith("G0"):
            continue
        graph = edges.graph(kinds)
        for component in components(graph):
            members = set(component)
            used = {
                kind
                for source in component
                for target, kind in graph.get(source, {}).items()
                if target in members
            }
            # A circle of writes alone is allowed and must not hide one with a read in it.
            family, needed = ("G1c", "wr") if name.startswith("G1c") else ("G0", "ww")
            if needed not in used or any(members >= one for one in known[family]):
                continue
            known[family].append(members)
            circle = [ops[vertex] for vertex in _shortest_circle(graph, component, needed)]
            text = f"{len(circle)} operations in a circle ({' '.join(sorted(used))})"
            yield Anomaly(name, text, tuple(circle))
