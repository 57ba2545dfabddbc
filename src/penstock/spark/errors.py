"""The errors of a Spark query: each has the problem, its cause and the remedy.

Spark shows their text at the end of a Python traceback, often in a log whose reader did not start
the query, so each text is complete: it names the option, the topic and the remedy.
"""

from collections.abc import Sequence

from penstock.core.errors import PenstockError


class SparkQueryError(PenstockError):
    """Base of the errors that a query raises."""


class OptionError(SparkQueryError):
    """An option of the source or the sink is missing, wrong, or contradicts another one."""

    def __init__(self, option: str, problem: str, remedy: str) -> None:
        super().__init__(option, problem, remedy)
        self.option = option
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"option '{self.option}': {self.problem} {self.remedy}"


class SubscriptionError(SparkQueryError):
    """A topic or partition of the query does not exist."""

    def __init__(self, option: str, problem: str, remedy: str, missing: Sequence[str] = ()) -> None:
        """Create the error; `missing` has the topics that do not exist."""
        super().__init__(option, problem, remedy, missing)
        self.option = option
        self.problem = problem
        self.remedy = remedy
        self.missing = tuple(missing)

    def __str__(self) -> str:
        return f"option '{self.option}': {self.problem} {self.remedy}"


class CheckpointError(SparkQueryError):
    """An offset in the checkpoint of the query is unusable."""


class DataLossError(SparkQueryError):
    """Records that the query has to read were deleted or replaced."""

    def __init__(
        self,
        text: str,
        other_logs: Sequence[str] = (),
        recreated: Sequence[str] = (),
        losses: Sequence[str] = (),
        *,
        is_other_cluster: bool = False,
    ) -> None:
        """Create the error with the texts about its causes.

        `other_logs`: about logs that end before the position, or were rewritten from there.
        `recreated`: sentences about topics that were deleted and created again.
        `losses`: all losses, each without its remedy.
        """
        super().__init__(text)
        self.other_logs = tuple(other_logs)
        self.recreated = tuple(recreated)
        self.losses = tuple(losses)
        self.is_other_cluster = is_other_cluster


def first_of(names: Sequence[str], count_max: int) -> str:
    """Return the first names for a message, in their order."""
    more = f" and {len(names) - count_max} more" if len(names) > count_max else ""
    return ", ".join(names[:count_max]) + more
