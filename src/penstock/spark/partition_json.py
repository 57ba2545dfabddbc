"""Partitions in JSON as Spark's Kafka source writes them, read and written (pure).

    {"orders": [0, 1]}                      which partitions: the option `assign`
    {"orders": {"0": 23, "1": -1}}          a number for each: offsets or timestamps

JSON of another form is an `OptionError` with an example. The caller defines the meaning of a
number.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.core.limits import TOPIC_NAME_CHARACTERS_MAX
from penstock.core.types import TopicPartition
from penstock.spark.errors import OptionError, first_of
from penstock.spark.option_values import LONG_MAX, require_short, shown

PARTITION_MAX: Final = 2**31 - 1
PARTITIONS_EXAMPLE: Final = '{"orders": [0, 1], "payments": [0]}'
VALUES_EXAMPLE: Final = '{"orders": {"0": 23, "1": -1}, "payments": {"0": -2}}'
TIMES_EXAMPLE: Final = '{"orders": {"0": 1714564800000, "1": 1714564800000}}'


class PartitionFormError(Exception):
    """The JSON has another form; the text names the place."""


def read_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Return the partitions, in the order of their names."""
    try:
        topics = object_of(_parsed(option, text), "the value")
        found = [
            TopicPartition(_topic(topic), _number(index, 0, PARTITION_MAX))
            for topic, indexes in topics.items()
            for index in _array(indexes, topic)
        ]
        if not found:
            raise PartitionFormError("it names no partition")
        if len(set(found)) < len(found):
            raise PartitionFormError("it names a partition twice")
    except PartitionFormError as error:
        raise _refused(option, error, PARTITIONS_EXAMPLE) from None
    return tuple(sorted(found))


def read_numbers(option: str, text: str, *, lowest: int, example: str) -> dict[TopicPartition, int]:
    """Return a number for each partition."""
    try:
        topics = object_of(_parsed(option, text), "the value")
        found = numbers_of(topics, lowest)
    except PartitionFormError as error:
        raise _refused(option, error, example) from None
    return found


def numbers_of(topics: Mapping[str, Any], lowest: int) -> dict[TopicPartition, int]:
    """Return a number for each partition, from parsed JSON, or raise `PartitionFormError`."""
    return {
        TopicPartition(_topic(topic), _index(index)): _number(number, lowest, LONG_MAX)
        for topic, numbers in topics.items()
        for index, number in object_of(numbers, topic).items()
    }


def write_numbers(numbers: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return a document of the same form, in order, so that equal numbers have equal texts."""
    topics: dict[str, dict[str, int]] = {}
    for at in sorted(numbers):
        topics.setdefault(at.topic, {})[str(at.partition)] = numbers[at]
    return topics


def object_of(value: object, name: str) -> dict[str, Any]:
    """Return a value of parsed JSON that must be an object."""
    if not isinstance(value, dict):
        raise PartitionFormError(f"{name} is not a JSON object")
    return value


def text_of(value: object, name: str) -> str:
    """Return a value of parsed JSON that must be a text, and not an empty one."""
    if not isinstance(value, str) or not value:
        raise PartitionFormError(f"{name} is not a text")
    return value


def partition_names(partitions: Iterable[TopicPartition], count_max: int = 10) -> str:
    """Return the first partitions, in order, as a message names them."""
    return first_of([str(at) for at in sorted(partitions)], count_max)


def _parsed(option: str, text: str) -> object:
    try:
        return json.loads(require_short(option, text), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError):
        raise PartitionFormError(f"{shown(text)} is not JSON") from None


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise PartitionFormError("it names a topic or partition twice")
    return found


def _array(value: object, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise PartitionFormError(f"{name} has no JSON array of partitions")
    return value


def _topic(name: str) -> str:
    if not 0 < len(name) <= TOPIC_NAME_CHARACTERS_MAX:
        raise PartitionFormError(f"{shown(name)} is not a name of a topic")
    return name


def _index(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text[:11]) > PARTITION_MAX:
        raise PartitionFormError(f"{shown(text)} is not a partition")
    return int(text)


def _number(value: object, lowest: int, highest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise PartitionFormError(f"{shown(str(value))} is not a whole number of at least {lowest}")
    return value


def _refused(option: str, problem: PartitionFormError, example: str) -> OptionError:
    return OptionError(option, f"{problem}.", f"Set JSON such as {example}.")
