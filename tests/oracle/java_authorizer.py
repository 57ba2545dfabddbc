"""Apache Kafka's own authorizer, filters and checks of access rules, in a Java process.

Questions are lines of `AuthorizerOracle.java`, whose comment describes them. All are written to a
file, one Java process answers them, and its lines are the answers: a run costs one start of Java.
"""

import functools
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock.security.acls.filters import AclFilter
from penstock.security.acls.values import AclBinding
from tests.oracle.cache import OracleError, built, content_key, progress, run, tool
from tests.oracle.kafka_jars import class_path, java_command, java_version
from tests.security.acls.rule_model import Question

ANSWER_SECONDS_MAX = 300.0
SOURCE = Path(__file__).with_name("AuthorizerOracle.java")
ALLOWED, DENIED = "AD"
ILLEGAL_ARGUMENT, INDEX_OUT_OF_BOUNDS = "IS"
"""Characters of the answers to questions; the last two are exceptions that Kafka raised."""


@functools.cache
def compiled() -> Path:
    """The folder with the compiled program."""

    def build(folder: Path) -> None:
        progress("compiling the oracle of Kafka's authorizer")
        javac = tool("javac", "install a JDK, 17 or later (Debian: default-jdk-headless)")
        run([javac, "-nowarn", "-d", folder, "-cp", class_path(), SOURCE])

    return built(f"interop/authorizer-{content_key(SOURCE, java_version(), class_path())}", build)


def java_answers(lines: Iterable[str], folder: Path) -> list[str]:
    """Return the lines that Java prints for these lines; files are written to `folder`."""
    questions = folder / "questions.txt"
    with questions.open("w", encoding="utf-8") as written:
        written.writelines(f"{line}\n" for line in lines)
    command = java_command("AuthorizerOracle", appended_to_class_path=compiled(), log_level="error")
    with questions.open("rb") as given:
        done = subprocess.run(
            command, stdin=given, capture_output=True, timeout=ANSWER_SECONDS_MAX, check=False
        )
    if done.returncode != 0:
        raise OracleError(f"Java ended with {done.returncode}:\n{done.stderr.decode()[-4000:]}")
    # Not splitlines(): a name may have one of the characters that it divides at.
    return done.stdout.decode("utf-8").split("\n")[:-1]


def case_lines(
    rules: Iterable[AclBinding],
    super_users: Iterable[str],
    questions: Sequence[Question],
    *,
    is_open: bool,
) -> list[str]:
    """Return the lines of one set of rules; the answer has a character for each question."""
    lines = [_line("C", ";".join(super_users), "true" if is_open else "false")]
    lines += (_line("R", *rule) for rule in rules)
    for (kind, user), address, operation, resource_type, name in questions:
        words = (kind, user, address, operation, resource_type)
        lines.append(_line("T", *words) if name is None else _line("Q", *words, name))
    return [*lines, "E"]


def match_line(condition: AclFilter, rule: AclBinding) -> str:
    """Return the line that asks whether a filter matches a rule: the answer is 1 or 0."""
    return _line("F", *condition, *rule)


def creation_line(rule: AclBinding) -> str:
    """Return the line that asks for the message about a new rule."""
    return _line("V", *rule)


def filter_line(condition: AclFilter) -> str:
    """Return the line that asks for the message about a filter."""
    return _line("W", *condition)


def address_line(address: str) -> str:
    """Return the line that asks for the text of an address."""
    return _line("H", address)


def _line(*words: str | int | None) -> str:
    texts = (
        "~" if word is None else str(int(word) if isinstance(word, int) else word) for word in words
    )
    return "\t".join(texts)
