# C types for kernel.py, read by Cython when it compiles that file. They change no result: every value fits its type by the
# checks there, and tests compare the two.

cimport cython

from penstock.spark.encode.binary_column cimport BinaryColumn
from penstock.spark.encode.open_batch cimport OpenBatch

cdef int _ENDED, _FULL, _FLUSH, _READY
cdef long long _RECORD_BYTES_MAX
cdef unsigned long long _POSITIVE, _MASK_64


@cython.final
cdef class Rows:
    cdef readonly Py_ssize_t count
    cdef readonly long long timestamp_ms
    cdef readonly BinaryColumn keys, values, header_keys, header_values
    cdef bint has_partitions, has_headers
    cdef const int[::1] partitions
    cdef const int[::1] header_ends


@cython.final
cdef class Kernel:
    cdef readonly Py_ssize_t partition_count
    cdef readonly list batches
    cdef long long batch_bytes_max, buffered_bytes_max
    cdef readonly long long buffered_bytes
    cdef readonly Py_ssize_t sticky_partition, full_partition
    cdef readonly unsigned long long digest
    cdef Rows rows
    cdef Py_ssize_t row

    @cython.locals(code=cython.int)
    cpdef int run(self) except -1

    @cython.locals(rows=Rows, key_length=cython.longlong, value_length=cython.longlong, partition=cython.Py_ssize_t, batch=OpenBatch,
                   fields_size=cython.longlong, body_size=cython.longlong, record_size=cython.longlong, before=cython.longlong,
                   key_hash=cython.ulonglong)
    cdef int write_row(self, Py_ssize_t row) except -1

    @cython.locals(rows=Rows, partition=cython.Py_ssize_t)
    cdef Py_ssize_t partition_of(self, Py_ssize_t row, long long key_length, unsigned long long key_hash) except -1

    @cython.locals(rows=Rows, batch=OpenBatch, index=cython.Py_ssize_t, end=cython.Py_ssize_t, size=cython.longlong,
                   key_length=cython.longlong, value_length=cython.longlong)
    cdef Py_ssize_t headers_size(self, Py_ssize_t row) except -1

    @cython.locals(rows=Rows, index=cython.Py_ssize_t, end=cython.Py_ssize_t, length=cython.longlong)
    cdef int write_headers(self, Py_ssize_t row, OpenBatch batch) except -1


@cython.locals(total=cython.ulonglong, row=cython.Py_ssize_t, key_length=cython.longlong, key_hash=cython.ulonglong,
               value_length=cython.longlong)
cpdef unsigned long long digest_of_rows(Rows rows) except? 1
