"""Builds the compiled modules; everything else about the package is in pyproject.toml.

Two compilers, for two reasons (docs/decisions/0004):

- Cython compiles what walks over bytes with C types; it is a hundred times faster than Python.
- mypyc compiles the hot path of a request from the same typed source that runs uncompiled; a small
  request then costs less than half.

Both are optional. Without a C compiler the install succeeds, the same files run as plain Python,
and the broker says at its start that it is slower. An editable install compiles only the walker, so
that what is edited is what runs. `PENSTOCK_COMPILE=0` compiles nothing.
"""

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

WALKERS = [
    "records/scan",
    "records/span_walk",
    "records/time_scan",
    "protocol/single_produce",
    "spark/decode/record_parser",
    "spark/decode/column_writer",
    "spark/decode/kernel",
    "spark/encode/binary_column",
    "spark/encode/open_batch",
    "spark/encode/kernel",
    "spark/tables/values/columnar/byte_reader",
    "spark/tables/values/columnar/columns",
    "spark/tables/values/columnar/row_kernel",
    "spark/tables/values/avro/kernel",
    "spark/tables/values/protobuf/kernel",
    "spark/tables/values/json/scan",
    "spark/tables/values/json/field_names",
    "spark/tables/values/json/double",
    "spark/tables/values/json/time",
    "spark/tables/values/json/columns",
    "spark/tables/values/json/kernel",
]
NATIVE = [
    "storage/native_cache",
    "storage/native_sync",
]
"""Cython that has no Python twin of the same name: threads without the interpreter, system calls
that Python does not have."""
SHARED = "penstock.penstock__cython"
"""Code that Cython would repeat in each of its modules, half a megabyte of C. Cython also registers
the module without its package, so the name must not be one that another project would choose."""
HOT_PATH = [
    "core/cancellation.py",
    "core/clock.py",
    "core/deadlines.py",
    "core/deferred.py",
    "core/metrics.py",
    "protocol/wire.py",
    "protocol/headers.py",
    "protocol/framing.py",
    "protocol/connection.py",
    "protocol/stored/offset_commits.py",
    "records/batch.py",
    "records/crc32c.py",
    "records/stored_records.py",
    "records/validation.py",
    "storage/log/batch_walk.py",
    "storage/flush_work.py",
    "storage/flusher.py",
    "storage/group_commit.py",
    "storage/log/index_file.py",
    "storage/log/log_directory.py",
    "storage/log/log_reader.py",
    "storage/log/log_snapshots.py",
    "storage/log/log_types.py",
    "storage/log/open_transactions.py",
    "storage/log/partition_log.py",
    "storage/log/producer_entry.py",
    "storage/log/producer_state.py",
    "storage/log/replica_append.py",
    "storage/log/rolling.py",
    "storage/log/room.py",
    "storage/log/segment.py",
    "storage/service.py",
    "storage/threaded_reads.py",
    "storage/log/transaction_index.py",
    "replication/admission.py",
    "replication/copies.py",
    "replication/follower.py",
    "replication/hosted_partition.py",
    "replication/isr.py",
    "replication/isr_writer.py",
    "replication/manager.py",
    "replication/partition.py",
    "replication/partition_table.py",
    "replication/read_result.py",
    "replication/replica_session.py",
    "replication/stable_bytes.py",
    "replication/waits.py",
    "security/acls/authorizer.py",
    "security/acls/rule_index.py",
    "broker/access.py",
    "broker/answers.py",
    "broker/connections/alarms.py",
    "broker/pacing/budget.py",
    "broker/context.py",
    "broker/dispatch.py",
    "broker/connections/endings.py",
    "broker/fetch_answers.py",
    "broker/fetch_partitions.py",
    "broker/fetch_sessions.py",
    "broker/connections/file_sender.py",
    "broker/connections/listener.py",
    "broker/connections/listener_state.py",
    "broker/producing/produce_answers.py",
    "broker/producing/produce_run.py",
    "broker/quotas/ledger.py",
    "broker/quotas/limit_table.py",
    "broker/quotas/meter.py",
    "broker/quotas/quotas.py",
    "broker/quotas/rates.py",
    "broker/request_metrics.py",
    "broker/connections/send_queue.py",
    "broker/connections/session.py",
    "broker/connections/throttled.py",
    "broker/connections/time_limits.py",
    "broker/tls/layer.py",
    "broker/tls/plaintext_queue.py",
    "broker/tls/record_pieces.py",
    "broker/tls/secured_transport.py",
    "broker/pacing/turns.py",
    "broker/pacing/wide_permits.py",
    "broker/wide_requests.py",
    "broker/handlers/fetch.py",
    "broker/handlers/produce.py",
    "node/disk.py",
]


def walker() -> list[Extension]:
    """What walks over bytes one by one, by Cython."""
    from Cython.Build import cythonize

    sources = [
        Extension(
            "penstock." + name.replace("/", "."),
            sources=[f"src/penstock/{name}.py"],
            depends=[f"src/penstock/{name}.pxd"],
            extra_compile_args=["-O3", "-g0"],
        )
        for name in WALKERS
    ]
    sources += [
        Extension(
            "penstock." + name.replace("/", "."),
            sources=[f"src/penstock/{name}.pyx"],
            extra_compile_args=["-O3", "-g0", "-pthread"],
            extra_link_args=["-pthread"],
        )
        for name in NATIVE
    ]
    sources.append(
        Extension(SHARED, sources=["build/penstock__cython.c"], extra_compile_args=["-O2", "-g0"])
    )
    compiled: list[Extension] = cythonize(
        sources,
        shared_utility_qualified_name=SHARED,
        include_path=["src"],
        build_dir="build",
        nthreads=os.cpu_count() or 1,
        compiler_directives={
            "language_level": "3",
            # Every index is checked before it is read; tests and fuzzing hold them to that.
            "boundscheck": False,
            "wraparound": False,
            "initializedcheck": False,
            "annotation_typing": False,
        },
    )
    return compiled


def hot_path() -> list[Extension]:
    """The modules that every request passes, by mypyc."""
    from mypyc.build import mypycify

    # The build environment has no third parties: what comes from them is untyped here, and checked
    # with all its types by `make check`.
    options = ["--ignore-missing-imports", "--follow-imports=silent", "--config-file="]
    paths = [f"src/penstock/{name}" for name in HOT_PATH]
    compiled: list[Extension] = mypycify(
        [*options, *paths],
        opt_level="3",
        debug_level="0",
        group_name="penstock",
        # A file for each module, so that all cores compile.
        multi_file=True,
    )
    if sys.platform == "linux":
        for extension in compiled:
            # Functions of one file are called by the others; without these flags by a detour.
            extension.extra_compile_args += ["-fvisibility=hidden", "-fno-semantic-interposition"]
    return compiled


def extensions() -> list[Extension]:
    """What to compile on this machine for this kind of install."""
    is_wanted = os.environ.get("PENSTOCK_COMPILE", "1") != "0"
    if not is_wanted or not {"bdist_wheel", "build_ext", "editable_wheel"}.intersection(sys.argv):
        # Asked only what the package is, not to build it.
        return []
    is_editable = "editable_wheel" in sys.argv or "build_ext" in sys.argv
    if is_editable or not shutil.which(os.environ.get("CC", "cc").split()[0]):
        return walker()
    # The longest first, so that the others are compiled beside it.
    return hot_path() + walker()


class AllOrNothing(build_ext):
    """Compiles everything, or leaves nothing compiled: modules of the hot path need each other.

    A user gets a slower Penstock rather than none. With `CI` or `PENSTOCK_COMPILE` set, a failure
    of the compiler is an error: wheels for others are never built without compiled modules.
    """

    def build_extensions(self) -> None:
        """Compile, on all cores; on failure remove what was compiled before it."""
        cores = os.cpu_count() or 1
        # A thread for each extension, which waits for its files; the files share the cores.
        self.parallel = self.parallel or len(self.extensions)
        try:
            with ThreadPoolExecutor(cores) as files:
                self._compile_on(files)
                super().build_extensions()
        except Exception as error:
            if "CI" in os.environ or "PENSTOCK_COMPILE" in os.environ:
                raise
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []
            sys.stderr.write(f"penstock: installed without compiled modules, slower: {error}\n")

    def _compile_on(self, files: ThreadPoolExecutor) -> None:
        """Compile the files of an extension side by side; setuptools compiles one by one."""
        compile_all = self.compiler.compile

        def compile_each(sources: list[str], *options: object, **named: object) -> list[str]:
            jobs = [files.submit(compile_all, [one], *options, **named) for one in sources]
            return [name for job in jobs for name in job.result()]

        self.compiler.compile = compile_each


setup(ext_modules=extensions(), cmdclass={"build_ext": AllOrNothing})
