"""Finds the reason for a failed start of Spark in Java's output (pure, except a search for Java).

pyspark reports only that the Java process ended. The reason is in Java's output; this module finds
it, and ignores the lines of every start.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.spark.progress.line import reason_of

GATEWAY_EXITED: Final = "JAVA_GATEWAY_EXITED"
JAVA_NEEDED: Final = "Spark needs Java 17 or later"
_THROWN: Final = re.compile(r'^Exception in thread "[^"]*" (.+)$', re.MULTILINE)
_NOISE: Final = re.compile(
    r"^(\s|WARNING: |Using Spark's |Setting |To adjust |Picked up |NOTE: |\d\d/\d\d/\d\d )"
)
"""Lines of a successful start, and of stack traces."""
_TOO_OLD: Final = "UnsupportedClassVersionError"


def why_not_started(
    error: str, said: str, master: str | None, environment: Mapping[str, str]
) -> str:
    """Return the reason and the remedy, from the raised error and Java's output."""
    remedy = "Check --master, --conf and spark-defaults.conf."
    if GATEWAY_EXITED in error:
        missing = missing_java(environment)
        if missing:
            return f"Spark did not start: {missing}"
        if _TOO_OLD in said:
            return f"Spark did not start: {JAVA_NEEDED}, and this one is older. Set JAVA_HOME."
        reason = reason_in(said) or "Java ended at once; its output, if any, is above"
    else:
        reason = reason_of(error)
    return f"Spark did not start with master {master or '-'}: {reason.rstrip('.')}. {remedy}"


def missing_java(environment: Mapping[str, str]) -> str:
    """Return the problem with Spark's Java; empty if Java is found."""
    home = environment.get("JAVA_HOME")
    if home:
        if os.access(Path(home) / "bin" / "java", os.X_OK):
            return ""
        return (
            f"{JAVA_NEEDED}; JAVA_HOME is {home}, which has no bin/java. Set it to where Java is."
        )
    if shutil.which("java", path=environment.get("PATH")):
        return ""
    return f"{JAVA_NEEDED}, and there is none here. Install one, or set JAVA_HOME to where it is."


def reason_in(said: str) -> str:
    """Return the exception, or the first line that is not in every start."""
    thrown = _THROWN.findall(said)
    if thrown:
        return reason_of(thrown[-1])
    lines = [one for one in said.splitlines() if one.strip() and not _NOISE.match(one)]
    return reason_of(lines[0]) if lines else ""
