"""Spark jobs on a secured cluster, in a process of its own that writes Spark's event log.

    python -m tests.spark.secured_app FOLDER < OPTIONS

OPTIONS is JSON on standard input, so that secrets are not among the arguments: `ours` and `theirs`
are the options of `format("penstock")` and of Spark's own connector, `source` and `target` topics.
It reads the source with both as a batch, copies it exactly once to the target as a stream, reads
the target, and prints the rows of all three as JSON. Plans are printed to `FOLDER/plans.txt`.
"""

import contextlib
import json
import sys
from pathlib import Path

from penstock.spark.data_source import PenstockDataSource
from tests.spark.sessions import new_session


def main() -> None:
    """Run the jobs."""
    folder = Path(sys.argv[1])
    given = json.load(sys.stdin)
    events = folder / "events"
    events.mkdir()
    session = new_session(
        folder,
        slots=2,
        extra={
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            # A compressed log hides a password from a search.
            "spark.eventLog.compress": "false",
        },
    )
    session.dataSource.register(PenstockDataSource)
    found = {}
    with (folder / "plans.txt").open("w") as plans, contextlib.redirect_stdout(plans):
        for name, kind, options, topic in (
            ("ours", "penstock", given["ours"], given["source"]),
            ("theirs", "kafka", given["theirs"], given["source"]),
        ):
            rows = session.read.format(kind).options(**options).option("subscribe", topic).load()
            rows.explain(extended=True)
            found[name] = sorted(bytes(row.value).decode() for row in rows.collect())
        stream = session.readStream.format("penstock").options(**given["ours"])
        query = (
            stream.option("subscribe", given["source"])
            .option("startingOffsets", "earliest")
            .load()
            .select("value")
            .writeStream.format("penstock")
            .options(**given["ours"])
            .option("topic", given["target"])
            .option("deliveryGuarantee", "exactly-once")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        print(json.dumps(query.lastProgress, default=str))
        copied = session.read.format("penstock").options(**given["ours"])
        rows = copied.option("subscribe", given["target"]).load()
        found["copied"] = sorted(bytes(row.value).decode() for row in rows.collect())
    session.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
