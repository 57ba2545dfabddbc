# cython: language_level=3
"""`is_cached`: whether a range of a file is in the page cache, by one question to the kernel.

`cachestat` (Linux 6.5) counts the pages of a range that are in memory, whatever their number. Pages
whose read has begun and not ended count too, so the first and the last byte are read besides,
without waiting: the kernel reads ahead in order. `filesystem` has the same for other kernels, by
reading one byte in every so many.
"""

from mmap import PAGESIZE

from libc.errno cimport EAGAIN, errno
from libc.stdint cimport uint64_t

cdef extern from "sys/uio.h" nogil:
    cdef struct iovec:
        void *iov_base
        size_t iov_len
    ssize_t preadv2(int descriptor, const iovec *parts, int count, long position, int flags)
    int RWF_NOWAIT

cdef extern from "unistd.h" nogil:
    long syscall(long number, ...)

cdef enum:
    CACHESTAT = 451

cdef long PAGE_BYTES = PAGESIZE

cdef struct Range:
    uint64_t position
    uint64_t size

cdef struct Counts:
    uint64_t cached
    uint64_t dirty
    uint64_t written_back
    uint64_t evicted
    uint64_t recently_evicted


cdef int has_byte(int descriptor, long position) noexcept nogil:
    """1 when it is in memory, 0 when not, -1 when that cannot be asked."""
    cdef char byte
    cdef iovec part
    cdef ssize_t count
    part.iov_base = &byte
    part.iov_len = 1
    count = preadv2(descriptor, &part, 1, position, RWF_NOWAIT)
    if count >= 0:
        return count == 1
    return 0 if errno == EAGAIN else -1


def is_cached(int descriptor, long position, long size):
    """1 when the whole range is in memory, 0 when not, -1 when this kernel does not say."""
    cdef Range asked
    cdef Counts counts
    cdef long last = position + size - 1
    cdef int answer
    # Whole pages: the kernel counts those that the range touches.
    asked.position = position // PAGE_BYTES * PAGE_BYTES
    asked.size = last - asked.position + 1
    if syscall(CACHESTAT, descriptor, &asked, &counts, 0) != 0:
        return -1
    if counts.cached < (asked.size + PAGE_BYTES - 1) // PAGE_BYTES:
        return 0
    answer = has_byte(descriptor, position)
    if answer == 1:
        answer = has_byte(descriptor, last)
    return answer
