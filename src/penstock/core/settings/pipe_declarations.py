"""`[[pipes]]` of a settings file: topics that are copied from or sent to a parent (pure).

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
            description="Addresses of brokers of the parent, `host:port`, separated by commas; "
            'with `transport = "http"` its URL, such as https://hq.example.com:8081.',
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
        Literal["down", "up"],
        Field(
            description="`down`: the parent's topics are copied to this broker. `up`: records of "
            "this broker's topics are sent to the parent.",
        ),
    ] = "down"
    transport: Annotated[
        Literal["kafka", "http"],
        Field(
            description="`kafka`: Kafka's protocol. `http`: the HTTP port of a Penstock parent, "
            "for pipes down through networks that pass only HTTP.",
        ),
    ] = "kafka"
    site: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
            description='Name of this broker at the parent, for `direction = "up"`; each broker '
            "needs its own. Unset: `registry.node_id`.",
        ),
    ] = None
    topics: Annotated[
        tuple[TopicPattern, ...],
        Field(
            min_length=1,
            max_length=PATTERNS_MAX,
            description="Topics to mirror or to send; `*` stands for any characters.",
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
        Literal["stop", "skip", "refresh"],
        Field(
            description="If records were deleted before they were copied. `stop`: the "
            "partition waits for an operator. `skip`: it goes on at the first record that is left. "
            "`refresh`: a snapshot replaces the mirror, see `refresh_from`.",
        ),
    ] = "stop"
    refresh_from: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=4_096,
            description='Place of snapshots for `on_gap = "refresh"`: a directory of this machine, '
            "or an s3:// address. `{topic}` stands for the name of the topic.",
        ),
    ] = None
    on_full: Annotated[
        Literal["refuse", "drop_oldest"],
        Field(
            description="If the disk has no room while records wait to be sent up. `refuse`: they "
            "stay, and clients cannot write. `drop_oldest`: the oldest are deleted unsent.",
        ),
    ] = "refuse"
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
            description="Bytes that the pipe copies in a second, at most; 0: no bound. A pause is "
            "at most 30 s: a single batch that needs longer exceeds the bound.",
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


def is_overlapping(one: str, other: str) -> bool:
    """Return whether a name can be that of both patterns."""
    if "*" not in one or "*" not in other:
        return is_match(one, other) if "*" not in one else is_match(other, one)
    begins = one.split("*", 1)[0], other.split("*", 1)[0]
    ends = one.rsplit("*", 1)[1], other.rsplit("*", 1)[1]
    return (begins[0].startswith(begins[1]) or begins[1].startswith(begins[0])) and (
        ends[0].endswith(ends[1]) or ends[1].endswith(ends[0])
    )


def is_mirrored(name: str, pipes: Iterable[PipeDeclaration]) -> bool:
    """Return whether a pipe creates the topic of this name, so that clients must not."""
    return any(
        is_match(name, pattern)
        for pipe in pipes
        if pipe.direction == "down"
        for pattern in pipe.topics
    )


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
        if pipe.on_gap == "refresh" and pipe.refresh_from is None:
            problems.append(f'{place.where("on_gap")}: on_gap = "refresh" needs refresh_from.')
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
