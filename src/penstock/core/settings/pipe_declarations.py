"""`[[pipes]]` of a settings file: topics that are copied from a parent's cluster (pure).

    [[pipes]]
    name = "hq"
    parent = "hq.example.com:9092"
    topics = ["price", "promo.*"]
    groups = ["till-*"]
    on_gap = "skip"

Guarantees: a returned pipe has a unique name, at least one topic, and values within their bounds.
Neither the parent nor the file of `client_config` is opened here. `edge.pipes` carries pipes out.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints, ValidationError

from penstock.core.settings.settings_section import Section

SECTION: Final = "pipes"
PIPES_MAX: Final = 32
PATTERNS_MAX: Final = 256
NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
POLL_INTERVAL_MS_MAX: Final = 5_000
"""Below the time in which a parent must answer."""

TopicPattern = Annotated[
    str, StringConstraints(max_length=249, pattern=r"^[A-Za-z0-9._*-]{1,249}$")
]
GroupPattern = Annotated[str, StringConstraints(min_length=1, max_length=255)]


class PipeDeclaration(Section):
    """One pipe of a settings file."""

    name: Annotated[
        str,
        Field(
            pattern=NAME_PATTERN,
            description="Name of the pipe, in `penstock pipe` and in the metadata of its mirrors.",
        ),
    ]
    parent: Annotated[
        str,
        Field(
            min_length=1,
            max_length=4_096,
            description="Addresses of brokers of the parent, `host:port`, separated by commas.",
            json_schema_extra={"kafka": "bootstrap.servers"},
        ),
    ]
    client_config: Annotated[
        str | None,
        Field(
            min_length=1,
            description="File with client settings for the parent, such as `security.protocol`; "
            "the format of `--command-config`. Unset: no TLS and no login.",
        ),
    ] = None
    direction: Annotated[
        Literal["down"],
        Field(description="`down`: the parent's topics are copied to this broker."),
    ] = "down"
    topics: Annotated[
        tuple[TopicPattern, ...],
        Field(
            min_length=1,
            max_length=PATTERNS_MAX,
            description="Topics to mirror; `*` stands for any characters.",
        ),
    ]
    groups: Annotated[
        tuple[GroupPattern, ...],
        Field(
            max_length=PATTERNS_MAX,
            description="Groups whose committed offsets are copied while they have no members "
            "here; `*` stands for any characters.",
        ),
    ] = ()
    on_gap: Annotated[
        Literal["stop", "skip"],
        Field(
            description="If the parent deleted records before they were copied. `stop`: the "
            "partition waits for an operator. `skip`: its log begins anew where the parent's does.",
        ),
    ] = "stop"
    priority: Annotated[
        Literal["low", "normal"],
        Field(
            description="`low`: the pipe waits while disk space is low. All wait on a full disk."
        ),
    ] = "normal"
    bytes_per_second_max: Annotated[
        int,
        Field(
            ge=0,
            le=2**40,
            description="Bytes that the pipe copies in a second, at most; 0: no bound.",
            json_schema_extra={"unit": "bytes"},
        ),
    ] = 0
    batch_bytes_max: Annotated[
        int,
        Field(
            ge=1_024,
            le=67_108_864,
            description="Bytes of one answer of the parent, at most; a larger batch comes alone.",
            json_schema_extra={"unit": "bytes", "kafka": "fetch.max.bytes"},
        ),
    ] = 1_048_576
    poll_interval_ms: Annotated[
        int,
        Field(
            ge=10,
            le=POLL_INTERVAL_MS_MAX,
            description="Longest wait of a request at the parent; new records end it at once.",
            json_schema_extra={"unit": "milliseconds", "kafka": "fetch.max.wait.ms"},
        ),
    ] = 1_000


def is_match(name: str, pattern: str) -> bool:
    """Return whether a name is that of a pattern, whose `*` stand for any characters."""
    if "*" not in pattern:
        return name == pattern
    first, *others = pattern.split("*")
    last = others.pop()
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    position, end = len(first), len(name) - len(last)
    for part in others:
        position = name.find(part, position, end)
        if position < 0:
            return False
        position += len(part)
    return True


def is_mirrored(name: str, pipes: Iterable[PipeDeclaration]) -> bool:
    """Return whether a pipe creates the topic of this name, so that clients must not."""
    return any(is_match(name, pattern) for pipe in pipes for pattern in pipe.topics)


def read_pipes(
    entries: list[object], lines: Mapping[str, int], file_name: str, problems: list[str]
) -> tuple[PipeDeclaration, ...]:
    """Return the valid pipes; add the errors of the others to `problems`."""
    if len(entries) > PIPES_MAX:
        problems.append(f"{file_name} has {len(entries)} pipes, more than {PIPES_MAX}.")
        return ()
    found: dict[str, PipeDeclaration] = {}
    for index, entry in enumerate(entries):
        place = _Place(f"{SECTION}[{index}]", lines, file_name)
        if not isinstance(entry, dict):
            problems.append(f"{place.where()}: a pipe is a table, not {entry!r}: [[{SECTION}]].")
            continue
        try:
            pipe = pipe_of(entry)
        except ValidationError as error:
            problems += (place.problem(dict(one)) for one in error.errors(include_url=False))
            continue
        if pipe.name in found:
            problems.append(f"{place.where('name')}: the pipe {pipe.name!r} is declared twice.")
        found[pipe.name] = pipe
    return tuple(found.values())


def pipe_of(values: Mapping[str, object]) -> PipeDeclaration:
    """Return the pipe of a table; lists of the table become tuples."""
    given = {key: tuple(one) if isinstance(one, list) else one for key, one in values.items()}
    return PipeDeclaration.model_validate(given)


class _Place:
    """The place of one table of the array."""

    def __init__(self, key: str, lines: Mapping[str, int], file_name: str) -> None:
        self._key = key
        self._lines = lines
        self._file_name = file_name

    def where(self, name: str = "") -> str:
        """Return the file and line of one of the keys."""
        from penstock.core.settings.toml_lines import line_of  # only with declared pipes

        line = line_of(self._lines, f"{self._key}.{name}" if name else self._key)
        return self._file_name if line is None else f"{self._file_name} line {line}"

    def problem(self, error: Mapping[str, Any]) -> str:
        """Return the message for an error of the validation."""
        name = str(error["loc"][0])
        if error["type"] == "extra_forbidden":
            known = ", ".join(PipeDeclaration.model_fields)
            return f"{self.where(name)}: {name!r} is not a setting of a pipe. There are {known}."
        if error["type"] == "missing":
            return f"{self.where()}: the pipe has no {name}. Add it."
        reason = error["msg"][:1].lower() + error["msg"][1:]
        return f"{self.where(name)}: {name} = {error['input']!r}: {reason}."
