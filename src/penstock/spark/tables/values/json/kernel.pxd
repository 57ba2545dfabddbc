# C types for json/kernel.py, read by Cython when it compiles that file. They change no result: every value fits its type by the
# checks there, and tests compare the two on hostile bytes.

cimport cython

from penstock.spark.encode.binary_column cimport BinaryColumn
from penstock.spark.tables.values.json.columns cimport JsonColumns
from penstock.spark.tables.values.json.scan cimport JsonScanner

cdef int _READ, _DOUBT, _PROBLEM, _GROW, _MALFORMED, _CUT, _STRUCT, _STRING, _UNKNOWN, _UNREADABLE, _ROOT, _NO_FIELD
cdef int _QUOTE, _COMMA, _PLUS, _MINUS, _SLASH, _ZERO, _NINE, _COLON, _LETTER_A, _LETTER_F, _LETTER_N, _LETTER_T, _ARRAY, _OBJECT, _OBJECT_END, _END
cdef unsigned long long _FACTOR, _MASK_64
cdef int _SLOT_BITS_MAX


@cython.final
cdef class JsonKernel:
    cdef readonly Py_ssize_t fields
    cdef readonly JsonScanner scanner
    cdef readonly JsonColumns columns
    cdef BinaryColumn source
    cdef readonly long long[::1] parents, name_starts, name_sizes, is_required, has_required
    cdef const unsigned char[::1] names
    cdef long long[::1] firsts, follows, slots, seen
    cdef int slot_shift
    cdef readonly Py_ssize_t row, doubt_count, malformed_count, cut_count, problem_count
    cdef public long long[::1] doubts, malformed, cut, problems, row_numbers
    cdef bint is_problem
    cdef Py_ssize_t previous, expected
    cdef Py_ssize_t problem_field, problem_start, problem_end

    cpdef forget(self)

    cpdef set_names(self, bytes names)

    cpdef begin(self, BinaryColumn source)

    @cython.locals(code=cython.int)
    cpdef int run(self) except -1

    @cython.locals(at=cython.Py_ssize_t)
    cdef void write_problem(self) noexcept

    @cython.locals(code=cython.int, byte=cython.int)
    cdef int read_row(self, Py_ssize_t size) except -1

    @cython.locals(start=cython.Py_ssize_t, is_nan=cython.bint, is_known=cython.bint)
    cdef int no_object(self, int byte) noexcept

    cdef int unexpected(self, int byte) noexcept

    @cython.locals(byte=cython.int, code=cython.int)
    cdef int read_object(self, Py_ssize_t parent) except -1

    @cython.locals(field=cython.Py_ssize_t, byte=cython.int, code=cython.int)
    cdef inline int read_member(self, Py_ssize_t parent) except -1

    cdef void learn(self, Py_ssize_t parent, Py_ssize_t previous, Py_ssize_t field) noexcept

    @cython.locals(start=cython.Py_ssize_t, size=cython.Py_ssize_t, slot=cython.Py_ssize_t, field=cython.Py_ssize_t)
    cdef inline Py_ssize_t field_of_key(self, Py_ssize_t parent, Py_ssize_t expected) noexcept

    @cython.locals(index=cython.Py_ssize_t, size=cython.Py_ssize_t, start=cython.Py_ssize_t)
    cdef inline bint is_name(self, Py_ssize_t field, Py_ssize_t at) noexcept

    @cython.locals(value=cython.ulonglong, first=cython.ulonglong, middle=cython.ulonglong, last=cython.ulonglong)
    cdef Py_ssize_t slot_of(self, Py_ssize_t parent, Py_ssize_t at, Py_ssize_t size) noexcept

    @cython.locals(byte=cython.int, start=cython.Py_ssize_t, code=cython.int)
    cdef inline int read_field(self, Py_ssize_t parent, Py_ssize_t field) except -1

    @cython.locals(start=cython.Py_ssize_t)
    cdef inline int read_value(self, Py_ssize_t field, int byte) except -1

    cdef void note_problem(self, Py_ssize_t field, Py_ssize_t start) noexcept

    @cython.locals(field=cython.Py_ssize_t)
    cdef void check_required(self, Py_ssize_t parent) noexcept
