"""Ignored differences between two outputs: ids, times, addresses, sizes, and the like. Pure.

Each rule has a name and replaces one kind of text that no two runs share, on two Apache Kafkas
neither. Whatever is not named here counts.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.interop.tool_runner import Output


class Rule(NamedTuple):
    """One kind of text that may differ."""

    name: str
    pattern: re.Pattern[str]
    shown: str


def _rule(name: str, pattern: str, shown: str) -> Rule:
    return Rule(name, re.compile(pattern, re.MULTILINE), shown)


RULES: Final = (
    _rule("line of a Java stack", r"^\s+(?:at |\.\.\. \d+ more).*\n", ""),
    _rule("spaces between columns", r"[ \t]+", " "),
    _rule("spaces at the ends of lines", r"^ | $", ""),
    _rule("address of the broker", r"(?:127\.0\.0\.1|localhost):\d+", "ADDRESS"),
    _rule("port of the broker", r"(?<=127\.0\.0\.1 )\d{5}", "PORT"),
    _rule("member of a group", r"[\w.-]+-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "MEMBER"),
    _rule("member of a group", r"\S{22}(?= /127\.0\.0\.1 )", "MEMBER"),
    _rule("id of a cluster or topic", r"(?<=I[dD]: )[\w-]{22}\b", "ID"),
    _rule("moment", r"\b1[6-9]\d{11}\b", "TIME"),
    _rule("day and time", r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.:,]\d{3}", "TIME"),
    # A member that comes before the one before it has left has nothing at first.
    _rule("nothing assigned yet", r'^.*"partitions_assigned","partitions":\[\]\}\n', ""),
    _rule("size of a log", r'(?<="size":)\d+', "SIZE"),
    _rule("measured rate", r'(?<="avg_throughput":)[^,}]+', "NUMBER"),
    _rule("measured number", r"\b\d+\.\d{2,}\b", "NUMBER"),
    _rule("measured time", r"\d+ ms (?=\d+(?:\.\d)?th)", "NUMBER ms "),
    _rule("measured time", r"(?<=th = )\d+", "NUMBER"),
    _rule("measured times", r"(?<=NUMBER, )\d+, \d+(?=, NUMBER)", "NUMBER, NUMBER"),
    _rule("age of a transaction", r"(?<= TIME )\d+(?= [\w.]+-\d+$)", "AGE"),
    _rule("place in the metadata", r"(?<=Epoch: )\d+$|(?<=HighWatermark: )\d+$", "PLACE"),
    _rule("replica of the metadata", r"^1 [\w-]{22} \d+ (?=0 TIME TIME)", "1 ID PLACE "),
    _rule("end of a tool in this JVM", r"^.*the tool ended\n?", ""),
)


def normal(text: str, folders: Sequence[str]) -> tuple[str, ...]:
    """The lines that count; `folders` are those of the broker and of the test."""
    for folder in folders:
        text = text.replace(folder, "FOLDER")
    for rule in RULES:
        text = rule.pattern.sub(rule.shown, text)
    return tuple(line for line in text.splitlines() if line)


UNORDERED: Final = ("kafka-consumer-groups --list", "kafka-groups --list", "kafka-console-consumer")
"""Commands that print what comes first, first: from several partitions, in no promised order."""


def lines_of(command: str, output: Output, folders: Sequence[str]) -> tuple[str, ...]:
    """A command's output as lines to compare: its exit code, then both streams."""
    printed = normal(output.out, folders)
    if command.startswith(UNORDERED):
        printed = tuple(sorted(printed))
    errors = (f"err: {line}" for line in normal(output.err, folders))
    return (f"exit {output.code}", *errors, *printed)
