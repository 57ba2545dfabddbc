# C types for kernel.py, read by Cython when it compiles that file. They change no result: every value fits its type by the
# checks there, and tests compare the two on hostile bytes.

cimport cython

from penstock.spark.decode.column_writer cimport ColumnWriter
from penstock.spark.decode.record_parser cimport RecordParser

cdef int _ENDED, _READY, _TIMESTAMP_RANGE, _DAMAGED
cdef long long _INT64_MAX
cdef Py_ssize_t _HEADER_BYTES, _LOG_OVERHEAD_BYTES, _MAGIC_END, _CRC_START
cdef long long _LENGTH_MIN, _MAGIC
cdef int _CODEC_MASK, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL


@cython.final
cdef class Kernel:
    cdef readonly ColumnWriter columns
    cdef readonly RecordParser record
    cdef readonly long long next_offset, until_offset, control_records, aborted_records, batch_offset
    cdef bint is_read_committed, is_open
    cdef long long decompressed_bytes_max, last_offset_delta, record_count, records_left
    cdef object fetched
    cdef const unsigned char[::1] fetched_bytes
    cdef Py_ssize_t fetched_end, batch_position
    cdef list aborted
    cdef Py_ssize_t aborted_index
    cdef set aborted_producers

    cpdef forget(self)

    @cython.locals(code=cython.int)
    cpdef int run(self) except -1

    @cython.locals(start=cython.Py_ssize_t, offset=cython.longlong, code=cython.int)
    cdef inline int read_record(self) except -1

    @cython.locals(start=cython.Py_ssize_t, available=cython.Py_ssize_t, length=cython.longlong, magic=cython.longlong,
                   end=cython.Py_ssize_t, attributes=cython.longlong, codec=cython.int)
    cdef int open_batch(self) except -1

    @cython.locals(stored=cython.longlong)
    cdef int check(self, Py_ssize_t start, Py_ssize_t end) except -1

    cdef int unfold(self, Py_ssize_t start, Py_ssize_t end, int codec) except -1

    cdef int is_passed_over(self, Py_ssize_t start, long long attributes) except -1

    @cython.locals(last_offset=cython.longlong, first_offset=cython.longlong, producer_id=cython.longlong)
    cdef int is_aborted(self, Py_ssize_t start, long long attributes) except -1

    cdef int close_batch(self) except -1

    @cython.locals(batch_end=cython.longlong)
    cdef inline void pass_batch(self) noexcept

    @cython.locals(value=cython.longlong, index=cython.int)
    cdef inline long long integer(self, Py_ssize_t position, int size) noexcept
