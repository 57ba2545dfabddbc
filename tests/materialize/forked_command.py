"""Runs `penstock` commands in forked processes: real processes, without the time of an import.

Reads a line of JSON, the words of a command; forks; prints the process id; waits for the end of the
process; prints its wait status. Ends with its input. A test kills the process by its id.
"""

import gc
import json
import os
import sys

from penstock.cli import main as cli_main
from penstock.cli.materialize import command
from penstock.materialize import materializer
from penstock.protocol.messages import api_versions, fetch, list_offsets, metadata

WARM = (cli_main, command, materializer, api_versions, fetch, list_offsets, metadata)
"""Imported before the forks."""


def main() -> None:
    assert WARM
    gc.freeze()
    for line in sys.stdin:
        words = json.loads(line)
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(2, 1)  # the parent's answers go through standard output
            os._exit(cli_main.run(words))
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(status, flush=True)


if __name__ == "__main__":
    main()
