"""Exit codes and the words for a failure: what happened, why, and what to do next.

    0    done
    1    the work failed: the broker refused, a file is damaged or missing
    2    the command was used wrongly, or a setting is wrong
    3    no broker could be reached; nothing was sent
    4    the outcome is unknown: a request was sent and its answer never came
    5    the broker is degraded (`penstock status`)
    6    the broker is critical (`penstock status`)
    130  interrupted (Ctrl-C)

A script may repeat after 3 without harm; after 4 it must look first.
"""

import errno
from typing import Final

from penstock.cli.pipeline_words import PipelineBrokerError
from penstock.core.errors import (
    AdminUnreachableError,
    AnswerLostError,
    BrokerAnswerError,
    BrokerUnreachableError,
    ConfigError,
    CorruptBatchError,
    CorruptIndexError,
    PenstockError,
    UnknownTopicOrPartitionError,
)

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
UNKNOWN: Final = 4
DEGRADED: Final = 5
CRITICAL: Final = 6
INTERRUPTED: Final = 130

_UNKNOWN_TOPIC_STEP: Final = (
    "`penstock topic list` shows the topics and how many partitions each has; "
    "`penstock topic create NAME` makes one."
)
_ANSWER_STEPS: Final[dict[str, str]] = {
    "UNKNOWN_TOPIC_OR_PARTITION": _UNKNOWN_TOPIC_STEP,
    "TOPIC_ALREADY_EXISTS": (
        "`penstock topic describe NAME` shows what it is like, and --if-not-exists takes it as it "
        "is."
    ),
    "INVALID_REPLICATION_FACTOR": "Leave --replication-factor out for the cluster's default.",
}
"""By what a broker calls it; the table of codes would take longer to import than a help to print.
"""

_NEXT_STEPS: Final[tuple[tuple[type[PenstockError], int, str], ...]] = (
    (
        AdminUnreachableError,
        UNREACHABLE,
        (
            "Name the admin port with --admin: a broker says it in its log when it starts, and has "
            "none with --no-admin."
        ),
    ),
    (PipelineBrokerError, UNREACHABLE, ""),
    (
        BrokerUnreachableError,
        UNREACHABLE,
        "Start a broker with `penstock serve`, or name another one with --bootstrap-server.",
    ),
    (
        AnswerLostError,
        UNKNOWN,
        "It may or may not have been carried out: look before you repeat it.",
    ),
    (ConfigError, USAGE, ""),
    (UnknownTopicOrPartitionError, FAILED, _UNKNOWN_TOPIC_STEP),
    (CorruptBatchError, FAILED, "`penstock log dump` shows how far the file is good."),
    (CorruptIndexError, FAILED, "A broker rebuilds it from its segment at the next start."),
)


def code_of(error: PenstockError) -> int:
    """The exit code for an error."""
    return next((code for kind, code, _ in _NEXT_STEPS if isinstance(error, kind)), FAILED)


def explanation(error: PenstockError) -> str:
    """One or two lines for a person."""
    step = next((step for kind, _, step in _NEXT_STEPS if isinstance(error, kind)), "")
    if isinstance(error, BrokerAnswerError):
        step = _ANSWER_STEPS.get(error.name, step)
    return f"penstock: {error}\n{step}".rstrip()


def explanation_of_system_error(error: OSError) -> str:
    """What the operating system refused; for a full disk also what to do."""
    reason = error.strerror or str(error)
    told = f"penstock: {error.filename}: {reason}" if error.filename else f"penstock: {reason}"
    if error.errno == errno.ENOSPC:
        told += "\nMake room on that disk, then run the command again."
    return told
