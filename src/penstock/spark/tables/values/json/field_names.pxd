# C types for json/field_names.py, read by Cython when it compiles that file. They change no result: every value fits its type by
# the checks there, and tests compare the two on hostile bytes.

cimport cython

from penstock.spark.tables.values.json.scan cimport JsonScanner

cdef int _UNKNOWN, _UNREADABLE, _QUOTE, _SLOT_BITS_MAX
cdef unsigned long long _FACTOR, _MASK_64


@cython.final
cdef class FieldNames:
    cdef JsonScanner scanner
    cdef readonly Py_ssize_t fields
    cdef readonly long long[::1] parents, name_starts, name_sizes
    cdef const unsigned char[::1] names
    cdef long long[::1] slots
    cdef int slot_shift

    cpdef set_names(self, bytes names)

    @cython.locals(start=cython.Py_ssize_t, size=cython.Py_ssize_t, slot=cython.Py_ssize_t, field=cython.Py_ssize_t)
    cdef Py_ssize_t field_of_key(self, Py_ssize_t parent, Py_ssize_t expected) noexcept

    @cython.locals(index=cython.Py_ssize_t, size=cython.Py_ssize_t, start=cython.Py_ssize_t)
    cdef inline bint is_name(self, Py_ssize_t field, Py_ssize_t at) noexcept

    @cython.locals(value=cython.ulonglong, first=cython.ulonglong, middle=cython.ulonglong, last=cython.ulonglong)
    cdef Py_ssize_t slot_of(self, Py_ssize_t parent, Py_ssize_t at, Py_ssize_t size) noexcept
