"""A stateful pipeline in a process of its own, to be killed.

    python -m tests.spark.tables.state_app FOLDER FORMAT BOOTSTRAP TOPIC SPARK_FOLDER

It prints a line for each batch, and its end as `stopped REASON` or `failed ERROR`.
"""

import sys
from pathlib import Path

from penstock.spark.tables.commit.stops import CommitStoppedError
from penstock.spark.tables.run.table_pipeline import TablePipeline
from tests.spark.sessions import new_session
from tests.spark.tables.pipeline_app import Printer
from tests.spark.tables.pipeline_world import World
from tests.spark.tables.state_world import definition_of, totals

OFFSETS_OF_A_BATCH_MAX = "400"


def main() -> int:
    """Run the pipeline until it ends."""
    folder, format_, bootstrap, topic, spark_folder = sys.argv[1:]
    world = World(Path(folder), format_, bootstrap, topic)
    definition = definition_of(
        world, source={"options": {"maxOffsetsPerTrigger": OFFSETS_OF_A_BATCH_MAX}}
    )
    spark = new_session(Path(spark_folder), slots=2)
    try:
        pipeline = TablePipeline(definition, transform=totals, observer=Printer())
        with pipeline.start(spark) as running:
            running.await_end()
    except CommitStoppedError as error:
        print(f"stopped {error.reason.name}: {error}", flush=True)
    except Exception as error:  # noqa: BLE001 - the watching test decides whether it was expected
        print(f"failed {type(error).__name__}: {error}", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
