# C types for columnar/columns.py, read by Cython when it compiles that file. They change no result: every value fits its type
# by the checks of its callers, and tests compare the two on hostile bytes.

cimport cython

cdef int _READ, _GROW, _STRUCT, _BOOLEAN, _INT8, _INT16, _INT32, _INT64, _FLOAT, _DECIMAL, _BINARY


@cython.final
cdef class ArrowColumns:
    cdef readonly Py_ssize_t fields, levels
    cdef readonly long long[::1] kinds, field_levels, first_children, child_counts
    cdef readonly long long[::1] bases, validity_bases, text_bases, text_ends, has_nulls
    cdef readonly long long[::1] lengths, counted, capacities
    cdef public Py_ssize_t full_field, full_level
    cdef unsigned char[::1] bytes
    cdef public unsigned char[::1] texts
    cdef short[::1] shorts
    cdef int[::1] integers
    cdef long long[::1] longs
    cdef unsigned long long[::1] unsigned_longs
    cdef float[::1] floats
    cdef double[::1] doubles
    cdef public const unsigned char[::1] data, symbols

    cpdef forget(self)

    cpdef set_buffer(self, object buffer)

    @cython.locals(level=cython.Py_ssize_t, field=cython.Py_ssize_t)
    cpdef begin(self)

    cpdef Py_ssize_t text_size(self, Py_ssize_t field)

    @cython.locals(level=cython.Py_ssize_t)
    cpdef void commit_row(self) noexcept

    @cython.locals(level=cython.Py_ssize_t, field=cython.Py_ssize_t, at=cython.Py_ssize_t)
    cpdef void abandon_row(self) noexcept

    cdef bint has_room(self, Py_ssize_t level) noexcept

    cdef void add_entry(self, Py_ssize_t level) noexcept

    cdef inline Py_ssize_t place(self, Py_ssize_t field) noexcept

    @cython.locals(at=cython.Py_ssize_t, child=cython.Py_ssize_t, end=cython.Py_ssize_t)
    cdef void write_null(self, Py_ssize_t field) noexcept

    @cython.locals(kind=cython.longlong, at=cython.Py_ssize_t)
    cdef void write_zero(self, Py_ssize_t field) noexcept

    @cython.locals(at=cython.Py_ssize_t, bit=cython.int)
    cdef inline void write_bit(self, Py_ssize_t base, Py_ssize_t index, bint is_set) noexcept

    cdef void write_boolean(self, Py_ssize_t field, bint is_set) noexcept

    cdef void write_integer(self, Py_ssize_t field, int value) noexcept

    cdef void write_short(self, Py_ssize_t field, short value) noexcept

    cdef void write_byte(self, Py_ssize_t field, unsigned char value) noexcept

    cdef void write_float(self, Py_ssize_t field, float value) noexcept

    cdef void write_long(self, Py_ssize_t field, long long value) noexcept

    @cython.locals(at=cython.Py_ssize_t)
    cdef void write_decimal(self, Py_ssize_t field, unsigned long long high, unsigned long long low) noexcept

    cdef void write_double(self, Py_ssize_t field, double value) noexcept

    @cython.locals(target=cython.Py_ssize_t, index=cython.Py_ssize_t)
    cdef int write_text(self, Py_ssize_t field, Py_ssize_t start, Py_ssize_t size) noexcept

    @cython.locals(target=cython.Py_ssize_t, index=cython.Py_ssize_t)
    cdef int write_symbol(self, Py_ssize_t field, Py_ssize_t start, Py_ssize_t size) noexcept

    @cython.locals(target=cython.Py_ssize_t)
    cdef Py_ssize_t text_room(self, Py_ssize_t field, Py_ssize_t size) noexcept

    @cython.locals(at=cython.Py_ssize_t)
    cdef void end_text(self, Py_ssize_t field, Py_ssize_t size) noexcept

    cdef void end_list(self, Py_ssize_t field, Py_ssize_t level) noexcept

    cdef Py_ssize_t list_start(self, Py_ssize_t field) noexcept

    @cython.locals(kind=cython.longlong, base=cython.Py_ssize_t, left=cython.Py_ssize_t, right=cython.Py_ssize_t, is_low=cython.bint)
    cdef bint is_same(self, Py_ssize_t field, Py_ssize_t one, Py_ssize_t other) noexcept

    cdef inline int bit(self, Py_ssize_t base, Py_ssize_t index) noexcept

    @cython.locals(base=cython.Py_ssize_t, start=cython.Py_ssize_t, size=cython.Py_ssize_t, begin=cython.Py_ssize_t,
                   index=cython.Py_ssize_t, left=cython.int)
    cdef bint is_same_text(self, Py_ssize_t field, Py_ssize_t one, Py_ssize_t other) noexcept
