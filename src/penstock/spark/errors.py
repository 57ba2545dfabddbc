"""What goes wrong in a Spark query: each error says what happened, why, and what to do next.

Spark shows the text of these at the end of a Python traceback, often in a log that somebody else
reads, so a text stands alone: it names the option, the topic and the remedy.
"""

from collections.abc import Sequence

from penstock.core.errors import PenstockError


class SparkQueryError(PenstockError):
    """Base of the errors that a query is told of."""


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
    """What the query asks to read is not there."""

    def __init__(self, option: str, problem: str, remedy: str, missing: Sequence[str] = ()) -> None:
        """`missing`: the topics that are not there."""
        super().__init__(option, problem, remedy, missing)
        self.option = option
        self.problem = problem
        self.remedy = remedy
        self.missing = tuple(missing)

    def __str__(self) -> str:
        return f"option '{self.option}': {self.problem} {self.remedy}"


class CheckpointError(SparkQueryError):
    """An offset in the checkpoint of the query cannot be used."""


class DataLossError(SparkQueryError):
    """Records that the query has to read are not there any more, or not the same."""

    def __init__(
        self, text: str, other_logs: Sequence[str] = (), recreated: Sequence[str] = ()
    ) -> None:
        """`other_logs`: of logs that end before what was read, or were written anew from there.

        `recreated`: sentences about topics that were deleted and created again.
        """
        super().__init__(text)
        self.other_logs = tuple(other_logs)
        self.recreated = tuple(recreated)


def first_of(names: Sequence[str], count_max: int) -> str:
    """Some names as a message has them: in their order, and not endlessly."""
    more = f" and {len(names) - count_max} more" if len(names) > count_max else ""
    return ", ".join(names[:count_max]) + more
