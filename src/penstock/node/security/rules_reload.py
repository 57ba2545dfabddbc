"""`RulesReload`: the rules file of `security.acl_file`, read at the start and after each change.

A file is taken or refused as a whole. At the start a bad file ends the start; later it changes
nothing: the rules from before stay in force, the reason is in the log, and `problem` has it for the
health of the broker. A file that is gone is a bad file: its rules stay in force.
"""

import asyncio
import logging
from pathlib import Path

from penstock.core.errors import ConfigError
from penstock.core.file_watch import FileWatch
from penstock.core.metrics import Registry
from penstock.node.security.audit_log import AuditLog
from penstock.node.settings.file_look import look_at
from penstock.security import audit
from penstock.security.acls.authorizer import AclAuthorizer, RuleOrigin
from penstock.security.acls.rules_file import FILE_BYTES_MAX, parse_rules
from penstock.security.acls.values import AclBinding
from penstock.security.audit import AuditEvent

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Time between two looks at the file: a saved file is in force within two seconds."""


class RulesReload:
    """Keeps the rules of one file in force."""

    def __init__(
        self, path: str, authorizer: AclAuthorizer, log: AuditLog, metrics: Registry
    ) -> None:
        self._path = path
        self._authorizer = authorizer
        self._log = log
        self._watch = FileWatch(look_at(path))
        self.problem: str | None = None
        """The reason why the last file was refused; None if it was not."""
        self._results = metrics.counters(
            "acl_file_reloads_total",
            "Times that the rules file was read again.",
            "result",
            ("applied", "refused"),
        )
        authorizer.replace(RuleOrigin.FILE, read_rules(path))

    async def run(self) -> None:
        """Watch the file until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._watch.note(look_at(self._path)):
                await self.reload()

    async def reload(self) -> None:
        """Read the file again; take or refuse it."""
        try:
            rules = await asyncio.to_thread(read_rules, self._path)
        except ConfigError as error:
            self.problem = str(error)
            self._results["refused"].value += 1
            logger.error("the rules file is refused, the rules stay as they were: %s", error)
            return
        self.problem = None
        self._authorizer.replace(RuleOrigin.FILE, rules)
        self._results["applied"].value += 1
        self._log.write(
            AuditEvent(event=audit.RULES_RELOADED, resource=self._path, count=len(rules))
        )
        logger.info("rules file: %d rules are in force", len(rules))


def read_rules(path: str) -> tuple[AclBinding, ...]:
    """Return the rules of a file; raise `ConfigError`. It blocks."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"the rules file {path} cannot be read: {error.strerror}.",
            hint="Restore the file, or remove security.acl_file and restart the broker.",
        ) from error
    try:
        return parse_rules(data)
    except ConfigError as error:
        raise ConfigError(f"the rules file {path}: {error}", hint=error.hint) from error
