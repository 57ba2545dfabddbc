"""A schema registry with Confluent's API: schemas by id and by subject, over HTTP.

Guarantees: a response has at most `ANSWER_BYTES_MAX`, a call lasts at most its timeout times its
attempts, and at most `SCHEMAS_MAX` schemas are cached. The schema of an id never changes, so it is
requested once. An unknown id is cached for `UNKNOWN_S`, so that bad records do not cause many
calls. No credentials are in a message.

An error of one schema is a `SchemaError` or `UnknownSchemaError`, and rejects its values; an error
of the registry is a `RegistryError`.

It parses nothing: a schema is text, with the texts of its references.
"""

import http.client
import json
import time
import urllib.error
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.clock import Clock, SystemClock
from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values.registry_requests import Problem, RegistryRequests

ANSWER_BYTES_MAX: Final = 4_194_304
SCHEMAS_MAX: Final = 1_000
"""The maximum number of ids in the values of one task; a topic has a few."""
REFERENCES_MAX: Final = 100
"""The maximum number of references of one schema, in all levels."""
TIMEOUT_S: Final = 10.0
ATTEMPTS: Final = 3
PAUSE_S: Final = 0.5
UNKNOWN_S: Final = 30.0
NOT_FOUND: Final = 404
_UNKNOWN: Final = frozenset({400, NOT_FOUND, 422})
"""The status codes of registries for an unknown or invalid id."""
_SERVER_ERROR: Final = 500
_TOO_MANY: Final = 429
"""The status code of a retried error, like an error of the server."""


class RegistryError(SparkQueryError):
    """A request to the registry failed; a later attempt may succeed."""


class UnknownSchemaError(SparkQueryError):
    """The registry responds, and does not have the schema."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """One schema of the registry."""

    schema_id: int
    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """The texts of its references by name, dependencies first."""


class Registry:
    """The client of one registry, used by one thread."""

    def __init__(
        self,
        address: str,
        options: Mapping[str, str] | None = None,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        try:
            self._requests = RegistryRequests(address, options or {})
        except ValueError as error:
            raise RegistryError(str(error)) from None
        self._base = self._requests.base
        self._clock = clock if clock is not None else SystemClock()
        self._sleep = sleep
        self._timeout_s = timeout_s
        self._schemas: dict[int, RegisteredSchema] = {}
        self._unknown_until: dict[int, float] = {}

    @property
    def address(self) -> str:
        """The address of the registry, without a password."""
        return self._base

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return the schema of this id."""
        found = self._schemas.get(schema_id)
        if found is not None:
            return found
        now_s = self._clock.monotonic()
        if self._unknown_until.get(schema_id, now_s) > now_s:
            raise UnknownSchemaError(self._no_schema(schema_id))
        try:
            answer = self._get(f"/schemas/ids/{schema_id}")
        except UnknownSchemaError:
            _keep(self._unknown_until, schema_id, now_s + UNKNOWN_S)
            raise UnknownSchemaError(self._no_schema(schema_id)) from None
        found = self._schema(schema_id, answer)
        _keep(self._schemas, schema_id, found)
        return found

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest schema of this subject; it may change, so it is requested each time."""
        answer = self._get(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest")
        schema_id = answer.get("id")
        if not isinstance(schema_id, int):
            raise RegistryError(f"{self._base} gave subject '{subject}' without an id.")
        return self._schema(schema_id, answer)

    def _schema(self, schema_id: int, answer: Mapping[str, Any]) -> RegisteredSchema:
        text = answer.get("schema")
        if not isinstance(text, str):
            raise RegistryError(
                f"{self._base} answers without a schema for id {schema_id}. "
                "Check that the address is that of a Confluent-compatible API."
            )
        collected: dict[str, str] = {}
        self._collect(answer.get("references") or [], collected)
        kind = str(answer.get("schemaType") or "AVRO").upper()
        return RegisteredSchema(schema_id, kind, text, tuple(collected.items()))

    def _collect(self, references: object, collected: dict[str, str]) -> None:
        """Collect the texts of references, dependencies first."""
        if not isinstance(references, list):
            raise RegistryError(f"{self._base} gives references that are no list.")
        for one in references:
            name, subject, version = (one.get(key) for key in ("name", "subject", "version"))
            if name in collected:
                continue
            if len(collected) >= REFERENCES_MAX:
                raise SchemaError(
                    f"a schema of {self._base}",
                    f"it references more than {REFERENCES_MAX} other schemas.",
                    "Use fewer references.",
                )
            # Mark the reference before the request, so that a cycle ends here.
            collected[name] = ""
            place = f"/subjects/{urllib.parse.quote(str(subject), safe='')}/versions/{version}"
            answer = self._get(place)
            self._collect(answer.get("references") or [], collected)
            del collected[name]
            collected[name] = str(answer.get("schema"))

    def _get(self, path: str) -> Mapping[str, Any]:
        problem = Problem("", "", may_pass=True)
        for attempt in range(ATTEMPTS):
            if attempt:
                self._sleep(PAUSE_S * attempt)
            try:
                return self._asked(path)
            except urllib.error.HTTPError as error:
                with error:
                    problem = self._requests.problem_of(error)
                if error.code in _UNKNOWN:
                    raise UnknownSchemaError(f"{self._base}{path}: {problem.text}") from None
                if error.code < _SERVER_ERROR and error.code != _TOO_MANY:
                    break
            except (OSError, http.client.HTTPException) as error:
                problem = self._requests.problem_of(error)
                if not problem.may_pass:
                    break
        raise RegistryError(
            f"the schema registry does not answer {self._base}{path}: {problem.text}. "
            f"{problem.remedy}"
        )

    def _asked(self, path: str) -> Mapping[str, Any]:
        data = self._requests.get(path, ANSWER_BYTES_MAX, self._timeout_s)
        if len(data) > ANSWER_BYTES_MAX:
            raise SchemaError(
                f"{self._base}{path}",
                f"the answer has more than {ANSWER_BYTES_MAX} bytes.",
                "Use a smaller schema.",
            )
        try:
            document = json.loads(data)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise RegistryError(
                f"{self._base}{path} answers with something that is no JSON object. "
                "Check that the address is that of a Confluent-compatible API."
            )
        return document

    def _no_schema(self, schema_id: int) -> str:
        return f"the registry {self._base} has no schema of id {schema_id}."


def _keep(cache: dict[int, Any], key: int, value: object) -> None:
    if len(cache) >= SCHEMAS_MAX:
        del cache[next(iter(cache))]
    cache[key] = value
