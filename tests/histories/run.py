"""`run_history`: load under faults, heal, read everything, check. Works on either broker.

The history is saved below the folder of the run, and a report that fails says where: the same can
be checked again with `python -m tests.checker`.
"""

import dataclasses
import time
from pathlib import Path

from tests.checker.check import Mode, Report, check
from tests.checker.history import Op, save
from tests.crash.loop_disk import LoopDisk
from tests.histories.nemesis import Nemesis
from tests.histories.plan import (
    PARTITIONS_OF_A_TOPIC,
    TOPIC_SETTINGS,
    Library,
    Plan,
    transactional_id_of,
)
from tests.histories.recorder import Recorder
from tests.oracle.running_broker import RunningBroker

PREPARE_SECONDS_MAX = 30.0
CREATE_SECONDS = 5.0
RETRY_SECONDS = 0.2
LOG_SHOWN = 2_000
"""Characters of the broker's log in a failure."""
KEPT = Path(__file__).resolve().parents[2] / "build" / "histories"
"""Where histories stay after a run."""


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a run."""

    plan: Plan
    history: list[Op]
    report: Report
    faults: list[str]
    is_complete: bool
    """Whether the final phase came to the end of every key; a hanging log fails the run."""
    saved: Path
    seconds: float

    @property
    def is_valid(self) -> bool:
        """Nothing forbidden, and everything could be read."""
        return self.is_complete and self.report.is_valid

    def line(self) -> str:
        """For docs/proofs.md and the log of CI."""
        figures = self.report.figures
        verdict = "valid" if self.is_valid else "NOT VALID"
        verdict += "" if self.is_complete else " (the end was never reached)"
        counts = f"{len(self.history) // 2} operations, {len(self.faults)} faults"
        values = f"{figures.values_sent} values sent, {figures.values_read} read"
        found = {name: len(cases) for name, cases in sorted(self.report.forbidden.items())}
        tail = f", forbidden {found}" if found else ""
        return f"history {self.plan.name}: {verdict}, {counts}, {values}{tail}"


def create_topics(bootstrap: str, plan: Plan) -> None:
    """The topics of the plan; again, with a new client, while the broker is not registered."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    deadline = time.monotonic() + PREPARE_SECONDS_MAX
    missing = set(plan.topic_names)
    while missing:
        # librdkafka waits for ever when the first answer it gets lists no broker.
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        wanted = [
            NewTopic(name, PARTITIONS_OF_A_TOPIC, 1, config=TOPIC_SETTINGS) for name in missing
        ]
        for name, future in admin.create_topics(wanted).items():
            try:
                future.result(CREATE_SECONDS)
                missing.discard(name)
            except (KafkaException, TimeoutError) as error:
                cause = error.args[0] if error.args else None
                if (
                    isinstance(cause, KafkaError)
                    and cause.code() == KafkaError.TOPIC_ALREADY_EXISTS
                ):
                    missing.discard(name)
                elif time.monotonic() > deadline:
                    raise
        if missing:
            time.sleep(RETRY_SECONDS)


def end_transactions(bootstrap: str, plan: Plan) -> None:
    """What killed workers left open is aborted: a new producer of each transactional id does it."""
    from confluent_kafka import KafkaException, Producer

    deadline = time.monotonic() + PREPARE_SECONDS_MAX
    for slot in range(len(plan.libraries) if plan.in_transactions else 0):
        is_done = False
        while not is_done:
            producer = Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "transactional.id": transactional_id_of(slot),
                    "log_level": 0,
                }
            )
            try:
                producer.init_transactions(PREPARE_SECONDS_MAX)
                is_done = True
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_SECONDS)


def run_history(
    broker: RunningBroker, plan: Plan, folder: Path, disk: LoopDisk | None = None
) -> Result:
    """One run on a started broker. It raises when the run itself was faulty, not the broker."""
    begun = time.monotonic()
    recorder = Recorder(plan, broker.bootstrap)
    nemesis = Nemesis(plan, broker, recorder, disk)
    folder.mkdir(parents=True, exist_ok=True)
    saved = folder / f"{broker.name}-{plan.name}.jsonl"
    try:
        create_topics(broker.bootstrap, plan)
        recorder.start_all()
        nemesis.run()
        recorder.end()
        nemesis.end_upheaval()
        end_transactions(broker.bootstrap, plan)
        is_complete = recorder.read_everything(_readers(plan))
    except Exception as error:
        error.add_note(f"the broker's log ends:\n{broker.log_text()[-LOG_SHOWN:]}")
        raise
    finally:
        nemesis.heal()
        recorder.abandon()
        history = recorder.history()
        save(history, saved)
    failures = recorder.failures()
    assert not failures, "\n".join(failures)
    report = check(history, Mode(with_subscribe=plan.via == "subscribe"))
    assert report.figures.values_read, f"nothing was read, which proves nothing: {saved}"
    seconds = time.monotonic() - begun
    return Result(plan, history, report, nemesis.made, is_complete, saved, seconds)


def _readers(plan: Plan) -> tuple[Library, ...]:
    """Each library once."""
    return tuple(dict.fromkeys(plan.libraries))


def require_valid(result: Result, broker: RunningBroker) -> None:
    """Fail with the whole report, the command that repeats it and the end of the broker's log."""
    print(result.line(), flush=True)
    if result.is_valid:
        return
    raise AssertionError(
        f"{result.report.text()}\nplan: {result.plan}\nfaults: {result.faults}\n"
        f"history: {result.saved}\nthe broker's log ends:\n{broker.log_text()[-LOG_SHOWN:]}"
    )
