"""The golden file of conversations: Apache Kafka's lines, and ours where they differ.

    == plain_wrong_password
    kafka   | SaslHandshake v1 PLAIN -> 0, [...]
    penstock| ...

Lines of `penstock` are there only for conversations that are meant to differ.
"""

from pathlib import Path
from typing import Final

GOLDEN: Final = Path(__file__).with_name("conversations.txt")
KAFKA: Final = "kafka"
PENSTOCK: Final = "penstock"
_WIDTH: Final = len(PENSTOCK)

Lines = dict[str, list[str]]


def read_golden(path: Path) -> dict[str, Lines]:
    """The lines by conversation, then by broker."""
    found: dict[str, Lines] = {}
    name = ""
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.startswith("== "):
            name = line.removeprefix("== ")
            found[name] = {}
        elif line:
            broker, _, text = line.partition("| ")
            found[name].setdefault(broker.strip(), []).append(text)
    return found


def write_golden(path: Path, name: str, broker: str, lines: list[str] | None) -> None:
    """Replace the lines of one broker in one conversation; None removes them."""
    found = read_golden(path)
    brokers = found.setdefault(name, {})
    if lines is None:
        brokers.pop(broker, None)
    else:
        brokers[broker] = lines
    text = []
    for one in sorted(found):
        text.append(f"== {one}")
        for known in (KAFKA, PENSTOCK):
            text += (f"{known:{_WIDTH}}| {line}" for line in found[one].get(known, []))
        text.append("")
    path.write_text("\n".join(text))
