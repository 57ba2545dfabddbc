"""Lost records of a stateful pipeline: the state would miss them, so nothing skips them (pure).

The remedies of a query contradict the state: a new checkpoint has none, and `failOnDataLoss` is
refused.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.spark.errors import DataLossError

_LINES_MAX: Final = 10
_HEADING: Final = "records that this pipeline has to read are gone, or are not the same any more:"
_REMEDY: Final = (
    "The results would be wrong without them. Compute the table again from the records that the "
    "topics have now: set another table.name, pipeline.name and pipeline.checkpoint, then "
    "`penstock table run FILE`."
)
_OTHER_CLUSTER: Final = "If this is not the cluster that you want, correct bootstrap_servers. "


@contextmanager
def with_stateful_remedy() -> Iterator[None]:
    """Replace the remedies of a loss by the one of stateful pipelines."""
    try:
        yield
    except DataLossError as error:
        if not error.losses:
            raise
        lines = [f"- {what}." for what in error.losses[:_LINES_MAX]]
        if len(error.losses) > _LINES_MAX:
            lines.append(f"- and {len(error.losses) - _LINES_MAX} more.")
        remedy = f"{_OTHER_CLUSTER if error.is_other_cluster else ''}{_REMEDY}"
        raise DataLossError("\n".join([_HEADING, *lines, remedy])) from None
