# C types for json/kernel.py, read by Cython when it compiles that file. They change no result: every value fits its type by the
# checks there, and tests compare the two on hostile bytes.

cimport cython

from penstock.spark.encode.binary_column cimport BinaryColumn
from penstock.spark.tables.values.columnar.columns cimport ArrowColumns
from penstock.spark.tables.values.json.columns cimport JsonColumns
from penstock.spark.tables.values.json.field_names cimport FieldNames
from penstock.spark.tables.values.json.scan cimport JsonScanner

cdef int _READ, _DOUBT, _PROBLEM, _GROW, _MALFORMED, _CUT, _STRUCT, _STRING, _LIST, _MAP, _UNKNOWN, _UNREADABLE, _ROOT, _NO_FIELD
cdef int _QUOTE, _COMMA, _PLUS, _MINUS, _SLASH, _ZERO, _NINE, _COLON, _LETTER_A, _LETTER_F, _LETTER_N, _LETTER_T, _ARRAY, _ARRAY_END, _OBJECT, _OBJECT_END, _END
cdef int _KEYS_MAX


@cython.final
cdef class JsonKernel:
    cdef readonly Py_ssize_t fields
    cdef readonly JsonScanner scanner
    cdef readonly ArrowColumns target
    cdef readonly JsonColumns columns
    cdef BinaryColumn source
    cdef readonly FieldNames names
    cdef readonly long long[::1] is_required, has_required
    cdef long long[::1] firsts, follows, seen
    cdef readonly long long[::1] inner_levels
    cdef long long stamp
    cdef readonly Py_ssize_t row, doubt_count, malformed_count, cut_count, problem_count
    cdef public long long[::1] doubts, malformed, cut, problems, row_numbers
    cdef bint is_problem
    cdef Py_ssize_t previous, expected
    cdef Py_ssize_t problem_field, problem_start, problem_end

    cpdef forget(self)

    cpdef begin(self, BinaryColumn source)

    @cython.locals(code=cython.int)
    cpdef int run(self) except -1

    cdef void leave_row(self, int code) noexcept

    cpdef doubt_row(self)

    @cython.locals(at=cython.Py_ssize_t)
    cdef void write_problem(self) noexcept

    @cython.locals(code=cython.int, byte=cython.int)
    cdef int read_row(self, Py_ssize_t size) except -1

    @cython.locals(start=cython.Py_ssize_t, is_nan=cython.bint, is_known=cython.bint)
    cdef int no_object(self, int byte) noexcept

    cdef int unexpected(self, int byte) noexcept

    cdef inline long long new_stamp(self) noexcept

    @cython.locals(byte=cython.int, code=cython.int, outer=cython.longlong, stamp=cython.longlong)
    cdef int read_object(self, Py_ssize_t parent) except -1

    @cython.locals(field=cython.Py_ssize_t, end=cython.Py_ssize_t)
    cdef void finish_object(self, Py_ssize_t parent, long long stamp) noexcept

    cdef void note_missing(self, Py_ssize_t parent, Py_ssize_t field) noexcept

    @cython.locals(level=cython.Py_ssize_t, child=cython.Py_ssize_t, byte=cython.int, code=cython.int)
    cdef int read_list(self, Py_ssize_t field) except -1

    @cython.locals(code=cython.int)
    cdef int read_item(self, Py_ssize_t child, int byte) except -1

    @cython.locals(level=cython.Py_ssize_t, first=cython.Py_ssize_t, byte=cython.int, code=cython.int)
    cdef int read_map(self, Py_ssize_t field) except -1

    @cython.locals(key=cython.Py_ssize_t, code=cython.int, last=cython.Py_ssize_t, byte=cython.int)
    cdef int read_map_entry(self, Py_ssize_t field, Py_ssize_t first, Py_ssize_t level) except -1

    @cython.locals(field=cython.Py_ssize_t, byte=cython.int, code=cython.int)
    cdef inline int read_member(self, Py_ssize_t parent) except -1

    cdef void learn(self, Py_ssize_t parent, Py_ssize_t previous, Py_ssize_t field) noexcept

    @cython.locals(byte=cython.int, start=cython.Py_ssize_t, code=cython.int)
    cdef inline int read_field(self, Py_ssize_t parent, Py_ssize_t field) except -1

    @cython.locals(start=cython.Py_ssize_t, kind=cython.longlong)
    cdef int read_value(self, Py_ssize_t field, int byte) except -1

    cdef void note_problem(self, Py_ssize_t field, Py_ssize_t start) noexcept
