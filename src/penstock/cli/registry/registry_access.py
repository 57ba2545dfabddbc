"""Calls of commands to a registry, with the operator's token.

Guarantees: the token is read from a file, because other users of a machine can read the words of a
command; it is sent over TLS or to this machine only. Each failure has a message with the next step.
Texts of the registry are printed without control characters.
"""

import asyncio
import json
import ssl
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click
from pydantic import BaseModel, ValidationError

from penstock.cli.options import TIMEOUT_SECONDS, Command, WrongUsageError
from penstock.core.errors import ConfigError, MalformedResponseError
from penstock.core.loopback import is_loopback
from penstock.edge.registry.registry_errors import RegistryRefusedError
from penstock.edge.registry.registry_http import (
    ANSWER_BYTES_MAX,
    HttpAnswer,
    RegistryHttp,
    url_problem,
)
from penstock.edge.registry.topology_file import read_token
from penstock.edge.registry.topology_follower import plain

URL_DEFAULT: Final = "http://127.0.0.1:8070"
TOKEN_FILE_DEFAULT: Final = "registry-data/operator.token"  # noqa: S105 (a file's name)
TREE_BYTES_MAX: Final = 134_217_728
"""100,000 nodes of about 1 KB."""
_PREFIX: Final = "/registry/v1"
_SUCCESS: Final = range(200, 300)

Document = TypeVar("Document", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Access:
    """The registry of a command, and the operator's token."""

    url: str
    token_file: str
    ca: str | None
    timeout_seconds: float

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        """Return the body of a success; raise the error of every other answer."""
        if (problem := url_problem(self.url)) is not None:
            raise WrongUsageError(
                f"--registry: {self.url!r} {problem}.", hint="`penstock registry` logs its URL."
            )
        _check_safe(self.url)
        headers = {"Authorization": f"Bearer {read_token(self.token_file)}"}
        data = None if body is None else json.dumps(body).encode()
        http = RegistryHttp(
            self.url,
            self._context(),
            seconds_max=self.timeout_seconds,
            answer_bytes_max=TREE_BYTES_MAX if path == "/tree" else ANSWER_BYTES_MAX,
        )
        answer = asyncio.run(http.call(method, f"{_PREFIX}{path}", headers, data))
        if answer.status not in _SUCCESS:
            raise _refused(answer)
        return answer.body

    def read(
        self, model: type[Document], method: str, path: str, body: dict[str, Any] | None = None
    ) -> Document:
        """Return the checked document of a success."""
        data = self.ask(method, path, body)
        try:
            return model.model_validate_json(data)
        except ValidationError as error:
            raise MalformedResponseError(
                f"{self.url} answered, and not as a registry does",
                hint="Check --registry, and that both have the same version of Penstock.",
            ) from error

    def _context(self) -> ssl.SSLContext | None:
        if not self.url.startswith("https://"):
            return None
        try:
            return ssl.create_default_context(cafile=self.ca)
        except (OSError, ValueError) as error:
            raise ConfigError(f"--ca {self.ca} cannot be used: {error}") from error


def access_options(command: Command) -> Command:
    """Add the options of a connection to a registry; the command gets `access` of them."""
    for option in (
        click.option(
            "--timeout",
            "timeout_seconds",
            type=TIMEOUT_SECONDS,
            default=30.0,
            show_default=True,
            metavar="SECONDS",
            help="Time for the answer.",
        ),
        click.option(
            "--ca",
            type=click.Path(dir_okay=False, exists=True),
            metavar="FILE",
            help="Certificate authorities of the registry, in PEM.",
        ),
        click.option(
            "--token-file",
            default=TOKEN_FILE_DEFAULT,
            envvar="PENSTOCK_REGISTRY_TOKEN_FILE",
            show_default=True,
            show_envvar=True,
            metavar="FILE",
            help="File with the operator's token.",
        ),
        click.option(
            "--registry",
            "url",
            default=URL_DEFAULT,
            envvar=["PENSTOCK_REGISTRY_URL", "REGISTRY_URL"],
            show_default=True,
            show_envvar=True,
            metavar="URL",
            help="Registry to ask.",
        ),
    ):
        command = option(command)
    return command


def _check_safe(url: str) -> None:
    from urllib.parse import urlsplit

    if url.startswith("http://") and not is_loopback(urlsplit(url).hostname or ""):
        raise WrongUsageError(
            f"--registry {url} would send the operator's token without TLS.",
            hint="Use https://, or run the command on the registry's machine.",
        )


def _refused(answer: HttpAnswer) -> RegistryRefusedError:
    try:
        document = json.loads(answer.body)
        detail, remedy = str(document["detail"]), str(document.get("remedy", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        detail, remedy = f"the registry answered {answer.status}", "Check --registry."
    return RegistryRefusedError(answer.status, "", plain(detail), plain(remedy))
