"""Apache Kafka's own command-line tools print the same on Penstock as on Apache Kafka.

The same script of commands (tool_script.py) runs on a fresh broker of each kind, both at the same
time, and each command's exit code and both of its streams are compared. Values that always differ
between two runs are removed by name (tool_texts.py). Other differences are in one table with the
reason (tool_differences.py), which is exact in both directions.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.interop.tool_differences import DIFFERENCES, judge
from tests.interop.tool_runner import MAIN_CLASSES, compiled
from tests.interop.tool_script import SCRIPT
from tests.interop.tool_sessions import run_script
from tests.interop.tool_texts import lines_of
from tests.oracle.both_brokers import NO_TOPIC_BY_ASKING, BothBrokers
from tests.oracle.kafka_broker import make_class_data_archive

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

PROPERTIES = {
    **NO_TOPIC_BY_ASKING,
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
}
COMMANDS = [step.line for step in SCRIPT]

Lines = Sequence[tuple[str, ...]]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lines, Lines]]:
    """What each command of the script gave, on Kafka and on Penstock."""
    compiled()
    make_class_data_archive()
    with BothBrokers(tmp_path_factory.mktemp, PROPERTIES) as both:
        brokers = [both.named("kafka"), both.named("penstock")]

        def run(number: int) -> Lines:
            broker, folder = brokers[number], tmp_path_factory.mktemp("tools")
            folders = (str(broker.data_dir), str(folder))
            return [
                lines_of(step.line, output, folders) for step, output in run_script(broker, folder)
            ]

        with ThreadPoolExecutor(max_workers=2) as threads:
            kafka, penstock = threads.map(run, (0, 1))
        yield kafka, penstock


@pytest.mark.parametrize("place", range(len(SCRIPT)), ids=COMMANDS)
def test_a_tool_prints_the_same(place: int, printed: tuple[Lines, Lines]) -> None:
    known = next((one for one in DIFFERENCES if one.command == COMMANDS[place]), None)
    assert judge(printed[0][place], printed[1][place], known) == ([], [])


def test_every_difference_is_of_a_command_in_the_script() -> None:
    assert {one.command for one in DIFFERENCES} <= set(COMMANDS)
    assert len({one.command for one in DIFFERENCES}) == len(DIFFERENCES)


def test_every_tool_is_used() -> None:
    assert {line.partition(" ")[0] for line in COMMANDS} == MAIN_CLASSES.keys()
