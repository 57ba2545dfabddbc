"""Refuses a function that sets a watermark of its own, before anything is committed.

Spark finds it only when it evaluates a batch with records.
"""

from typing import Any, Final

from pyspark.sql import DataFrame

from penstock.spark.errors import SparkQueryError

NODE: Final = "EventTimeWatermark"


class SecondWatermarkError(SparkQueryError):
    """The function sets a watermark, and the stream has one already."""


def require_one_watermark(result: DataFrame, pipeline: str) -> None:
    """Raise if the stream has a watermark of the function after that of Penstock."""
    plan: Any = result._jdf.queryExecution().analyzed()
    if _in_a_row(plan) > 1:
        raise SecondWatermarkError(
            f"the function of pipeline '{pipeline}' calls `withWatermark`, and its stream has a "
            "watermark already, by `state.event_time` and `state.delay`: Spark allows one. Remove "
            "the call from the function."
        )


def _in_a_row(node: Any) -> int:  # noqa: ANN401 - Java's
    """Return the number of watermarks one after the other, at most, from a source to the result."""
    children = node.children()
    below = [_in_a_row(children.apply(number)) for number in range(children.size())]
    return max(below, default=0) + int(str(node.nodeName()) == NODE)
