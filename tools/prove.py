"""Runs every proof at its full count and keeps the figures: `make proof`.

    python tools/prove.py                   run all, print the table
    python tools/prove.py --only kill       run one
    python tools/prove.py --write           run, and put the figures into docs/proofs.md
    python tools/prove.py --list            names and commands

A proof is a command of this repository; its figures are lines of its output. The whole output of
each proof is stored in build/proof/NAME.txt. With --write only a passed run replaces a row; rows of
other proofs stay. The figures in docs/proofs.md are never written by hand. The exit code is 1 if a
proof failed.
"""

import argparse
import datetime
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "proofs.md"
OUTPUT = ROOT / "build" / "proof"
FUZZ_SECONDS = 600
RELEASE_VARIABLE = "PENSTOCK_BROKER_PYTHON"
"""Names the interpreter that has the compiled package."""
SEEDS = 20_000
"""Seeds of the cluster simulator."""
SEEDS_OF_A_ROW = 2_500
"""A row of its own for each part, of 20 to 35 minutes on two quiet cores: the parts may run on
different days."""
HEAD = ("proof", "last figures", "run", "command")
GUARD_PROOFS = ("guards", "spark-kill", "table-kill", "soak-guards", "hostile-guards")
"""Proofs whose output has lines that begin with `guard`."""
GUARDS_HEAD = ("safeguard taken out", "what the check then reported")

Figures = Callable[[str], str]


def lines_like(*patterns: str) -> Figures:
    """Return a function that finds the lines that match a pattern, unchanged."""

    def figures(output: str) -> str:
        found = [
            line.strip().lstrip(".").strip()
            for line in output.splitlines()
            if any(re.search(pattern, line) for pattern in patterns)
        ]
        return "; ".join(found)

    return figures


def sums_of(text: str, pattern: str) -> Figures:
    """Return a function that sums the numbers of a pattern in each line and fills `text`."""

    def figures(output: str) -> str:
        rows = [
            [int(number) for number in match.groups()] for match in re.finditer(pattern, output)
        ]
        if not rows:
            return ""
        sums = [sum(column) for column in zip(*rows, strict=True)]
        return text.format(*(f"{number:,}" for number in sums), lines=len(rows))

    return figures


def passed(output: str) -> str:
    """Return the number of passed tests, from pytest's last line."""
    found = re.findall(r"(\d+) passed", output)
    return f"{found[-1]} tests passed" if found else ""


@dataclass(frozen=True)
class Proof:
    """One command and the parser of its output."""

    name: str
    title: str
    command: tuple[str, ...]
    figures: tuple[Figures, ...]
    environment: dict[str, str] = field(default_factory=dict)
    is_compiled: bool = False
    """Whether the command itself runs on the compiled package (`make release`), if there is one."""

    @property
    def shown(self) -> str:
        """The command as a user types it."""
        words = [f"{key}={value}" for key, value in self.environment.items()]
        return " ".join([*words, *(shlex.quote(word) for word in self.command)])


@dataclass(frozen=True)
class Outcome:
    """The result of one run."""

    proof: Proof
    is_passed: bool
    figures: str
    seconds: float
    output: str


def pytest_of(*paths: str, marker: str) -> tuple[str, ...]:
    """Return a pytest command that shows the output of tests."""
    words = ("python", "-m", "pytest", "-q", "-s", "-m", marker, "-p", "no:randomly")
    return (*words, "--timeout", "3600", *paths)


SUITES_OF_OTHERS = (
    ("client_check", "every API of the Java client"),
    ("franz_go", "franz-go's own tests"),
    ("librdkafka", "librdkafka's own tests, both group protocols"),
    ("kafka_it", "Apache Kafka's own integration tests"),
)
SECURED_BROKERS = (
    ("sessions", "Apache Kafka", "kafka"),
    ("sessions-penstock", "Penstock", "penstock"),
)
EVERYTHING = "crash or not crash"
LOGIN_FRAMES = ("tests/fuzz/test_login_fuzz.py", "-k", "test_frames_before_the_login")
PROOFS = (
    Proof(
        "crash-points",
        "Crash points: a cut after every change of 20 workloads",
        pytest_of("tests/crash/test_crash_points.py", marker=EVERYTHING),
        (
            sums_of(
                "{lines} workloads, {0} changes, {1} cuts, {2} recoveries checked",
                r"workload \d+: (\d+) changes, (\d+) cuts, (\d+) recoveries",
            ),
        ),
        {"PENSTOCK_CRASH_FULL": "1"},
    ),
    Proof(
        "kill",
        "kill -9 under load, three clients",
        pytest_of("tests/crash/test_kill.py", marker="crash"),
        (lines_like(r"rounds of kill -9"),),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "power-cut",
        "Power cuts on ext4 under load, three clients",
        pytest_of("tests/crash/test_power_cut.py", marker="crash"),
        (lines_like(r"\d+ power cuts:", r"flush os, one power cut"),),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "guards",
        "Each safeguard taken out in turn",
        pytest_of(
            "tests/crash/test_guards_bite.py",
            "tests/crash/test_broker_guards.py",
            "tests/histories/test_mutations.py",
            marker=EVERYTHING,
        ),
        (passed,),
    ),
    Proof(
        "histories",
        "Histories of real clients under faults: ten runs of three minutes, checked",
        pytest_of("tests/histories/test_histories.py", marker="chaos"),
        (
            sums_of(
                "{lines} runs, {0} operations, {1} faults, {2} values sent, {3} read,"
                " no forbidden anomaly",
                r"history \S+: valid, (\d+) operations, (\d+) faults,"
                r" (\d+) values sent, (\d+) read",
            ),
        ),
        {"PENSTOCK_PROOF": "1"},
    ),
    *(
        Proof(
            f"simulate-{first + SEEDS_OF_A_ROW - 1}",
            f"Whole clusters from seeds {first:,} to {first + SEEDS_OF_A_ROW - 1:,}, under faults:"
            " the production brokers in one process",
            (
                *("python", "-m", "tests.cluster_sim.run"),
                *(str(first), str(first + SEEDS_OF_A_ROW - 1), "--processes", "2"),
                *("--notes", f"build/simulated_seeds_{first}.txt"),
            ),
            (lines_like(r"^simulated clusters: "),),
            is_compiled=True,
        )
        for first in range(1, SEEDS, SEEDS_OF_A_ROW)
    ),
    Proof(
        "simulate-guards",
        "The rules of replication taken out in turn: the first of 2,000 seeds that finds it",
        ("python", "-m", "tests.cluster_sim.removed_guards", "2000"),
        (lines_like(r"^\w+: (?:seed \d+|not found)"),),
    ),
    Proof(
        "edge-simulate",
        "An edge of 10,000 sites from one seed: outages of a minute to seven days, twelve faults",
        pytest_of("tests/edge_sim/test_edge_world.py", "-k", "many", marker="simulate"),
        (lines_like(r"^edge of \d+ sites"),),
        {"PENSTOCK_EDGE_SITES": "10000", "PENSTOCK_EDGE_SEED": "7"},
    ),
    Proof(
        "edge-guards",
        "The rules of pipes and of the registry taken out in turn: the seed that finds it",
        ("python", "-m", "tests.edge_sim.removed_edge_guards", "60"),
        (lines_like(r"^\w+: (?:seed \d+|not found)"),),
    ),
    Proof(
        "edge-rules",
        "The rules of queues, push, up pipes and local tables taken out in turn: the test",
        ("python", "-m", "tests.edge_rules.removed_delivery_rules"),
        (lines_like(r"^\w+: (?:\w+(?:\[.*\])?: |NOT FOUND)"),),
    ),
    Proof(
        "edge-real",
        "20 processes of an edge, parents Penstock and Apache Kafka: kills, cuts, loss, full disks",
        pytest_of("tests/edge_real", marker="crash"),
        (lines_like(r"^edge of \d+ processes"),),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "cluster-power",
        "Power loss of all brokers of a cluster at once, 100 rounds",
        pytest_of("tests/chaos_cluster/test_power_of_all.py", marker="cluster_chaos"),
        (lines_like(r"power cuts of all", r"one power cut of all", r"replicas equal"),),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "cluster-faults",
        "A cluster in network namespaces under faults: ten runs of three minutes",
        pytest_of("tests/chaos_cluster/test_faults.py", marker="cluster_chaos"),
        (lines_like(r"^run \d+", r"history .*: valid"),),
        # Disks in memory: a sync of another program on the machine's disk stalls etcd for seconds.
        {"PENSTOCK_PROOF": "1", "PYTEST_DEBUG_TEMPROOT": "/dev/shm"},
    ),
    Proof(
        "cluster-model",
        "The metadata of 100,000 partitions on 100 brokers, as a model",
        pytest_of("tests/scale/test_cluster_model.py", marker="scale"),
        (lines_like(r"^cluster of "),),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "faults",
        "Full disk, short writes, EIO; six clients",
        pytest_of("tests/faults", marker=EVERYTHING),
        (passed,),
    ),
    Proof(
        "bad-input",
        "Bad input, with liveness, memory and log growth after each",
        pytest_of("tests/bad_input", marker="not chaos"),
        (passed,),
    ),
    Proof(
        "fuzz",
        "Every decoder fuzzed",
        ("python", "tools/fuzz.py", "--seconds", str(FUZZ_SECONDS)),
        (lines_like(r"targets, \d+ findings"), sums_of("{0} inputs", r": (\d+) inputs")),
    ),
    Proof(
        "interop",
        "Six clients, Penstock and Apache Kafka; log format",
        ("make", "interop-live"),
        (sums_of("{0} tests passed", r"(\d+) passed"),),
    ),
    *(
        Proof(
            name,
            f"Penstock's client on a secured {title}, 100 sessions renewed under load",
            pytest_of("tests/interop/test_secured_clients.py", "-k", broker, marker="interop"),
            (passed, lines_like(r"sessions on \w+ with \S+: ")),
            {"PENSTOCK_SESSIONS": "100"},
        )
        for name, title, broker in SECURED_BROKERS
    ),
    Proof(
        "authorizer",
        "Access rules: 100,000 random sets beside Apache Kafka's own authorizer",
        pytest_of("tests/interop/test_authorizer_oracle.py", marker="interop"),
        (passed, lines_like(r"^\.*(?:authorizer|filters): ")),
        {"PENSTOCK_AUTHORIZER_CASES": "100000"},
    ),
    *(
        Proof(
            f"login-frames-{seed}",
            f"Hostile frames in every state before the login, 5,000,000 (seed {seed})",
            pytest_of(*LOGIN_FRAMES, marker=EVERYTHING),
            (passed, lines_like(r"frames before the login: ")),
            {"PENSTOCK_LOGIN_FRAMES": "5000000", "PENSTOCK_LOGIN_SEED": seed},
        )
        for seed in ("2", "3")
    ),
    *(
        Proof(
            f"compat-{folder.replace('_', '-')}",
            f"Suite of others: {title}",
            ("python", "-m", f"compat.{folder}.run"),
            (lines_like(r" on penstock: \d+ passed"),),
        )
        for folder, title in SUITES_OF_OTHERS
    ),
    Proof(
        "spark-kill",
        "Spark, topic to topic, 30 rounds of kill -9; the same without its guard",
        pytest_of("tests/spark/test_kill_rounds.py", marker="spark"),
        (lines_like(r"rounds of kill -9 around"),),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "cdc",
        "PostgreSQL through Debezium into tables, a simulated day each: kills of Connect, pipeline"
        " and broker; rows and history equal the database",
        pytest_of("tests/spark/cdc/test_cdc_database.py", marker="spark"),
        (lines_like(r"^cdc \w+ from \w+: "),),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "cdc-partial",
        "PostgreSQL's long values that Debezium does not send, a simulated day each, with the same"
        " kills; rows equal the database",
        pytest_of("tests/spark/cdc/test_cdc_partial_database.py", marker="spark"),
        (lines_like(r"^cdc \w+ from \w+ with partial updates "),),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "table-kill",
        "Tables, topic to table, rounds of faults for each format; guards taken out in turn",
        pytest_of(
            "tests/spark/tables/test_batch_driver.py",
            "tests/spark/tables/test_delta_compaction.py",
            "tests/spark/tables/test_pipeline_kills.py",
            marker=EVERYTHING,
        ),
        (lines_like(r"rounds of faults around a pipeline"), passed),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "state-kill",
        "Totals of windows in tables, 20 kills of driver, JVM or workers for each format",
        pytest_of("tests/spark/tables/test_stateful_kills.py", marker="crash"),
        (lines_like(r"\d+ kills, \d+ records"),),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "store-kill",
        "Tables on S3, Iceberg in a REST catalog and Delta: kill -9, stopped stores, expired keys",
        pytest_of("tests/spark/stores/test_store_kills.py", marker="crash"),
        (lines_like(r"rounds of faults around a pipeline"), passed),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "catalog-kill",
        "Tables in a Hive metastore, in a database over S3 and in Nessie: kill -9, stopped stores",
        pytest_of(
            "tests/spark/stores/test_catalog_kills.py",
            "tests/spark/stores/test_nessie_kills.py",
            marker="crash",
        ),
        (lines_like(r"rounds of faults around a pipeline"), passed),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "first-row",
        "The first row, typed as the guide prints it: secured Kafka and Penstock, REST catalog, S3",
        pytest_of("tests/spark/test_lakehouse_guide.py", marker="spark"),
        (passed, lines_like(r"^\.*first row: ")),
    ),
    Proof(
        "nessie",
        "Tables in Project Nessie: the contract of tables, first commits, kill -9",
        pytest_of("tests/spark/stores/test_nessie.py", marker="crash"),
        (passed,),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "orchestrators",
        "The examples for Apache Airflow and Dagster, on Penstock and Apache Kafka",
        pytest_of("tests/spark/orchestration", marker="orchestrators"),
        (passed,),
    ),
    Proof(
        "table-contracts",
        "Tables of others, by Spark, deltalake and pyiceberg: written right or refused by name",
        pytest_of(
            "tests/spark/tables/test_table_contracts.py",
            "tests/spark/tables/test_delta_optimize.py",
            "tests/spark/tables/test_delta_constraints_run.py",
            "tests/spark/tables/test_delta_protocol.py",
            "tests/spark/tables/test_delta_features.py",
            "tests/spark/tables/test_iceberg_contract.py",
            "tests/spark/tables/test_hidden_nulls.py",
            marker=EVERYTHING,
        ),
        (lines_like(r"tables of other owners"), passed),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "table-day",
        "Tables, 24 simulated hours at a batch a minute with maintenance; some hours without",
        pytest_of("tests/spark/tables/test_day.py", marker="crash"),
        (lines_like(r"simulated hours[,:]"),),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "scale",
        "10,000 connections, 4,000 partitions",
        ("make", "scale"),
        (lines_like(r"IdleConnections\(|ManyPartitions\("),),
    ),
    Proof(
        "soak",
        "Half an hour at the limits: mixed load, full disk, settings changed each minute",
        ("make", "soak"),
        (lines_like(r"^soak of "),),
    ),
    Proof(
        "soak-guards",
        "The limits taken out in turn, half a minute each",
        pytest_of("tests/soak/test_soak_guards.py", marker="chaos"),
        (passed,),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "hostile",
        "Hostile neighbours: each attack, then ten minutes of mixes, on both builds",
        ("make", "hostile"),
        (lines_like(r"^summary of "),),
    ),
    Proof(
        "hostile-guards",
        "The bounds on hostile neighbours removed in turn",
        pytest_of("tests/hostile/test_hostile_guards.py", marker="chaos"),
        (passed,),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "group-scale",
        "1,000 members of one group, 10,000 groups, 1 million offsets",
        pytest_of("tests/scale/test_groups.py", marker="scale"),
        (lines_like(r"LargeGroup\(|ManyGroups\(|OffsetLoad\("),),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "spark-failover",
        "Spark's exactly-once sink and tables while leaders of three brokers are killed, 20 rounds",
        pytest_of("tests/spark/failover", marker="spark"),
        (lines_like(r"leaders killed under"),),
        {"PENSTOCK_PROOF": "1"},
    ),
    Proof(
        "bounces",
        "Apache Kafka's verifiable clients and message copier under rolling restarts, three passes",
        ("python", "-m", "compat.bounces.run", "--passes", "3"),
        (lines_like(r"hard passes"),),
    ),
)


def run(proof: Proof) -> Outcome:
    """Run one proof; show and store its output as it arrives."""
    print(f"\n=== {proof.name}: {proof.shown}", flush=True)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    lines: list[str] = []
    program, *words = proof.command
    release = os.environ.get(RELEASE_VARIABLE) if proof.is_compiled else None
    command = [(release or sys.executable) if program == "python" else program, *words]
    # The sources would hide the compiled package.
    sources = None if release else str(ROOT / "src")
    path = os.pathsep.join(filter(None, (sources, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path, **proof.environment}
    with (
        (OUTPUT / f"{proof.name}.txt").open("w") as kept,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            kept.write(line)
            print(line, end="", flush=True)
    output = "".join(lines)
    figures = "; ".join(filter(None, (read(output) for read in proof.figures)))
    is_passed = process.returncode == 0 and bool(figures)
    return Outcome(proof, is_passed, figures, time.monotonic() - begun, output)


# --- Tables ---


def row(cells: Iterable[str]) -> str:
    """Return one row of a table in Markdown."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def figures_table(outcomes: Sequence[Outcome], kept: str, today: str) -> str:
    """Return the table of all proofs: rows of passed runs are new, the others stay."""
    old = {line.split("|")[1].strip(): line for line in kept.splitlines() if line.startswith("| ")}
    new = {
        one.proof.title: row(
            (
                one.proof.title,
                one.figures,
                f"{today}, {one.seconds:.0f} s",
                f"`{one.proof.shown}`",
            )
        )
        for one in outcomes
        if one.is_passed
    }
    rows = [
        new.get(proof.title) or old.get(proof.title) or row((proof.title, "not run yet", "", ""))
        for proof in PROOFS
    ]
    return "\n".join([row(HEAD), row("---" for _ in HEAD), *rows])


def guards_table(output: str, kept: str = "") -> str:
    """Return the table of effects of missing safeguards, from a proof's output; other rows stay."""
    found = re.findall(r"^\.?guard ([^:]+): (.+)$", output, re.MULTILINE)
    found += [
        (name.replace("_", " ") + " (storage)", caught)
        for name, caught in re.findall(r"^\.?([a-z_]+): (cut after .+)$", output, re.MULTILINE)
    ]
    old = {line.split("|")[1].strip(): line for line in kept.splitlines()[2:]}
    new = {name: row((name, caught)) for name, caught in found}
    rows = [line for _, line in sorted({**old, **new}.items())]
    return "\n".join([row(GUARDS_HEAD), row("---" for _ in GUARDS_HEAD), *rows])


def between(page: str, name: str) -> str:
    """Return the page's text between the marks of this name."""
    return page.split(f"<!-- {name} -->\n")[1].split(f"\n<!-- /{name} -->", maxsplit=1)[0]


def put_between(page: str, name: str, text: str) -> str:
    """Return the page with another text between the marks of this name."""
    start, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
    before, rest = page.split(start)
    return before + start + text + end + rest.split(end)[1]


def machine() -> str:
    """Return a description of the machine of the figures."""
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def write_page(outcomes: Sequence[Outcome]) -> None:
    """Write the figures of passed runs to docs/proofs.md."""
    page = PAGE.read_text()
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    page = put_between(page, "figures", figures_table(outcomes, between(page, "figures"), today))
    page = put_between(page, "machine", f"Last machine: {machine()}.")
    for one in outcomes:
        if one.proof.name in GUARD_PROOFS and one.is_passed:
            kept = between(page, "guards")
            page = put_between(page, "guards", guards_table(one.output, kept))
    PAGE.write_text(page)


def main() -> int:
    """Run the requested proofs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    names = [proof.name for proof in PROOFS]
    parser.add_argument("--only", choices=names, action="append", help="may be given again")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/proofs.md")
    parser.add_argument("--list", action="store_true", help="names and commands, run nothing")
    arguments = parser.parse_args()
    chosen = [proof for proof in PROOFS if not arguments.only or proof.name in arguments.only]
    if arguments.list:
        print("\n".join(f"{proof.name:13} {proof.shown}" for proof in chosen))
        return 0
    outcomes = []
    for number, proof in enumerate(chosen, start=1):
        outcomes.append(run(proof))
        verdict = "passed" if outcomes[-1].is_passed else "FAILED"
        print(f"=== {proof.name} {verdict}, {number} of {len(chosen)}", flush=True)
    if arguments.write:
        write_page(outcomes)
    print()
    for one in outcomes:
        verdict = "passed" if one.is_passed else "FAILED"
        print(f"{one.proof.name:13} {verdict} in {one.seconds:5.0f} s  {one.figures}")
        print(f"{'':13} {one.proof.shown}")
    return 0 if all(one.is_passed for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
