"""`check`: all rules over one history, and which of their findings are allowed in its mode.

Guarantees: `is_valid` is true only when every anomaly found is one that Kafka's promises allow in
this mode. The report shows each kind with a few of its cases and the operations behind them.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from tests.checker.anomaly import Anomaly
from tests.checker.cycles import cycles
from tests.checker.derived import Derived
from tests.checker.figures import Figures, figures
from tests.checker.group_rules import GROUP_RULES
from tests.checker.history import Op
from tests.checker.log_rules import LOG_RULES
from tests.checker.order_rules import ORDER_RULES
from tests.checker.removal_rules import REMOVAL_RULES

Rule = Callable[[Derived], Iterator[Anomaly]]
RULES: tuple[Rule, ...] = (*LOG_RULES, *ORDER_RULES, *GROUP_RULES, *REMOVAL_RULES)

ALWAYS_ALLOWED = frozenset({"int-send-skip", "G0", "G0-process", "G0-realtime"})
"""Others may write between two sends of a transaction: Kafka does not isolate writes."""
ALLOWED_WITH_SUBSCRIBE = frozenset({"poll-skip", "nonmonotonic-poll"})
"""A rebalance between two operations moves a member's position."""
ALLOWED_WITH_WW = frozenset({"G1c", "G1c-process", "G1c-realtime"})
"""With edges between writes a circle needs no circle of information."""
CASES_SHOWN_MAX = 3
"""Of each kind in a report; more of the same seldom helps."""


@dataclasses.dataclass(frozen=True)
class Mode:
    """How the history was recorded, as far as it decides which outcomes are allowed."""

    with_subscribe: bool = False
    with_ww: bool = False
    is_read_to_the_end: bool = True
    """Whether the final phase was there; without it nothing can be called unseen."""

    @property
    def allowed(self) -> frozenset[str]:
        """The kinds that do not fail a run."""
        allowed = ALWAYS_ALLOWED
        if self.with_subscribe:
            allowed |= ALLOWED_WITH_SUBSCRIBE
        if self.with_ww:
            allowed |= ALLOWED_WITH_WW
        if not self.is_read_to_the_end:
            allowed |= {"unseen"}
        return allowed


@dataclasses.dataclass(frozen=True)
class Report:
    """Everything that was found."""

    mode: Mode
    anomalies: dict[str, list[Anomaly]]
    figures: Figures

    @property
    def forbidden(self) -> dict[str, list[Anomaly]]:
        """What fails the run."""
        allowed = self.mode.allowed
        return {name: found for name, found in self.anomalies.items() if name not in allowed}

    @property
    def is_valid(self) -> bool:
        """Whether nothing forbidden was found."""
        return not self.forbidden

    def text(self) -> str:
        """For a person."""
        lines = ["valid" if self.is_valid else "NOT VALID", self.figures.text()]
        for name, found in sorted(self.anomalies.items()):
            is_allowed = name in self.mode.allowed
            lines.append(f"{name}: {len(found)}{' (allowed)' if is_allowed else ''}")
            for case in found[: 0 if is_allowed else CASES_SHOWN_MAX]:
                lines.append(f"  {case.text}")
                lines += [f"    {op.short()}" for op in case.ops]
        return "\n".join(lines)


def check(history: Sequence[Op], mode: Mode | None = None) -> Report:
    """Every rule over the whole history."""
    mode = mode or Mode()
    derived = Derived(history)
    anomalies: dict[str, list[Anomaly]] = defaultdict(list)
    for rule in RULES:
        for found in rule(derived):
            anomalies[found.name].append(found)
    for found in cycles(derived, with_ww=mode.with_ww):
        anomalies[found.name].append(found)
    return Report(mode, dict(anomalies), figures(derived))
