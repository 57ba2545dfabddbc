"""Exit codes, and the message of a failure: `error:` what happened, `hint:` what to do.

    0    done
    1    the work failed: the broker refused, a file is damaged or missing
    2    the command was used wrongly, or a setting is wrong
    3    no broker could be reached; nothing was sent
    4    the outcome is unknown: a request was sent and its answer never came
    5    the broker is degraded (`penstock status`)
    6    the broker is critical (`penstock status`)
    7    too many of a pipeline's records are bad
    130  interrupted (Ctrl-C)

After 3 a script can retry safely; after 4 it must check the state first. After 2 and 7 the same
command again corrects nothing.
"""

import errno
from typing import Final

import click

from penstock.cli.text.pipeline_words import BadRecordsError, PipelineBrokerError
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

_HELP_WANTED: Final = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""Raised for a group without a command; its message is the help. click 8.1 prints it by itself."""

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
UNKNOWN: Final = 4
DEGRADED: Final = 5
CRITICAL: Final = 6
BAD_RECORDS: Final = 7
INTERRUPTED: Final = 130

_UNKNOWN_TOPIC_STEP: Final = (
    "`penstock topic list` shows the topics; `penstock topic create NAME` creates one."
)
_DENIED_STEP: Final = (
    "No access rule allows this to your user. An administrator can allow it with `penstock acl "
    "add`; the broker's audit log names the principal and the operation."
)
_ANSWER_STEPS: Final[dict[str, str]] = {
    "UNKNOWN_TOPIC_OR_PARTITION": _UNKNOWN_TOPIC_STEP,
    "TOPIC_ALREADY_EXISTS": (
        "Add --if-not-exists to accept the topic as it is; `penstock topic describe NAME` shows it."
    ),
    "INVALID_TOPIC_EXCEPTION": (
        "Use letters, digits, '.', '_' and '-', at most 249 of them, and not '.' or '..' alone."
    ),
    "INVALID_REPLICATION_FACTOR": "Leave --replication-factor out for the cluster's default.",
    "TOPIC_AUTHORIZATION_FAILED": _DENIED_STEP,
    "GROUP_AUTHORIZATION_FAILED": _DENIED_STEP,
    "CLUSTER_AUTHORIZATION_FAILED": _DENIED_STEP,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _DENIED_STEP,
    "SECURITY_DISABLED": 'Set security.authorizer = "acl" and restart the broker.',
}
"""By error name: importing the table of codes would take longer than printing the help."""

_NEXT_STEPS: Final[tuple[tuple[type[PenstockError], int, str], ...]] = (
    (
        AdminUnreachableError,
        UNREACHABLE,
        (
            "Name the admin port with --admin. A broker logs it when it starts, and has none with "
            "--no-admin."
        ),
    ),
    (PipelineBrokerError, UNREACHABLE, ""),
    (BadRecordsError, BAD_RECORDS, ""),
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
    """Return the exit code for an error."""
    return next((code for kind, code, _ in _NEXT_STEPS if isinstance(error, kind)), FAILED)


def message(what: str, hint: str) -> str:
    """Return the message of a failure; without a hint it has no second line."""
    return f"error: {what}\nhint: {hint}" if hint else f"error: {what}"


def explanation(error: PenstockError) -> str:
    """Return the message of an error that Penstock raised. The error's own hint has priority."""
    hint = next((step for kind, _, step in _NEXT_STEPS if isinstance(error, kind)), "")
    if isinstance(error, BrokerAnswerError):
        hint = _ANSWER_STEPS.get(error.name, hint)
    if isinstance(error, UnknownTopicOrPartitionError) and not error.topic:
        hint = ""  # the topic exists, and the message has its partitions
    return message(str(error), error.hint or hint)


def explanation_of_wrong_usage(error: click.ClickException) -> str:
    """Return the message of an invalid command line."""
    if isinstance(error, _HELP_WANTED):
        return str(error.format_message())
    hint: str = getattr(error, "hint", "")
    context = getattr(error, "ctx", None)
    if not hint and context is not None:
        hint = f"`{context.command_path} --help` shows the options and an example."
    return message(error.format_message(), hint)


def explanation_of_system_error(error: OSError) -> str:
    """Return the message of an operating system error."""
    reason = error.strerror or str(error)
    hint = (
        "Free space on that disk, then repeat the command." if error.errno == errno.ENOSPC else ""
    )
    return message(f"{error.filename}: {reason}" if error.filename else reason, hint)
