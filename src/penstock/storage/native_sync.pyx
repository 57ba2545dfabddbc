# cython: language_level=3
"""`NativeSyncPool`: threads of the operating system that sync files, without the interpreter.

The threads never take the interpreter's lock: they wait on a condition, call fdatasync, and write
to an eventfd that the event loop watches. So the loop runs on while files are synced, and many
files are synced at the same time; a file system with a journal then commits once for all of them.

A batch is the descriptors of one `submit`; its owner keeps the files open until the batch is taken.
Each sync has its own outcome: 0, or the error number. Nothing is tried again, except a call that a
signal interrupted (as `os.fdatasync` does). `sync_pool` has the contract, and the same in Python.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_create(pthread_t *thread, void *attributes, void *(*start)(void *), void *argument)
    int pthread_join(pthread_t thread, void **value)
    int pthread_mutex_init(pthread_mutex_t *mutex, void *attributes)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)
    int pthread_mutex_destroy(pthread_mutex_t *mutex)
    int pthread_cond_init(pthread_cond_t *condition, void *attributes)
    int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
    int pthread_cond_signal(pthread_cond_t *condition)
    int pthread_cond_broadcast(pthread_cond_t *condition)
    int pthread_cond_destroy(pthread_cond_t *condition)

cdef extern from "sys/eventfd.h" nogil:
    int eventfd(unsigned int value, int flags)
    int EFD_NONBLOCK
    int EFD_CLOEXEC

cdef extern from "unistd.h" nogil:
    ssize_t read(int descriptor, void *buffer, size_t size)
    ssize_t write(int descriptor, const void *buffer, size_t size)
    int close(int descriptor)
    int fdatasync(int descriptor)

cdef extern from "time.h" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec *now)
    int CLOCK_MONOTONIC

cdef enum:
    THREADS_BOUND = 64
    UNFINISHED = -1

cdef struct Batch:
    Batch *link
    int ticket
    int count
    int begun
    int left
    int is_awaited
    int is_watched
    double began_at
    double ended_at
    int *descriptors
    int *outcomes

cdef struct Pool:
    pthread_mutex_t lock
    pthread_cond_t work
    pthread_cond_t awaited
    pthread_t threads[THREADS_BOUND]
    int threads_max
    int thread_count
    int idle_count
    int is_stopping
    int report
    Batch *first
    Batch *last
    Batch *finished


cdef double now() noexcept nogil:
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return time.tv_sec + time.tv_nsec * 1e-9


cdef void report(Pool *pool) noexcept nogil:
    cdef uint64_t one = 1
    write(pool.report, &one, 8)


cdef void finish(Pool *pool, Batch *batch) noexcept nogil:
    """One sync of a batch has ended; the lock is held."""
    batch.left -= 1
    if batch.left == 0:
        batch.ended_at = now()
        if batch.is_awaited:
            pthread_cond_broadcast(&pool.awaited)
        else:
            batch.link = pool.finished
            pool.finished = batch
            report(pool)
    elif batch.is_watched:
        report(pool)


cdef void *run(void *argument) noexcept nogil:
    cdef Pool *pool = <Pool *>argument
    cdef Batch *batch
    cdef int number
    cdef int outcome
    pthread_mutex_lock(&pool.lock)
    while True:
        while pool.first == NULL and not pool.is_stopping:
            pool.idle_count += 1
            pthread_cond_wait(&pool.work, &pool.lock)
            pool.idle_count -= 1
        batch = pool.first
        if batch == NULL:
            break
        number = batch.begun
        batch.begun += 1
        if batch.begun == batch.count:
            pool.first = batch.link
            batch.link = NULL
        pthread_mutex_unlock(&pool.lock)
        outcome = 0
        while fdatasync(batch.descriptors[number]) != 0:
            if errno != EINTR:
                outcome = errno
                break
        pthread_mutex_lock(&pool.lock)
        batch.outcomes[number] = outcome
        finish(pool, batch)
    pthread_mutex_unlock(&pool.lock)
    return NULL


cdef void free_batch(Batch *batch) noexcept nogil:
    free(batch.descriptors)
    free(batch.outcomes)
    free(batch)


cdef class NativeSyncPool:
    """See `sync_pool.SyncPool`."""

    cdef Pool *pool
    cdef int last_ticket
    cdef dict batches
    cdef readonly int report_descriptor

    def __cinit__(self, int threads_max):
        self.batches = {}
        self.report_descriptor = -1
        self.pool = <Pool *>calloc(1, sizeof(Pool))
        if self.pool == NULL:
            raise MemoryError
        pthread_mutex_init(&self.pool.lock, NULL)
        pthread_cond_init(&self.pool.work, NULL)
        pthread_cond_init(&self.pool.awaited, NULL)
        self.pool.threads_max = min(threads_max, THREADS_BOUND)
        self.pool.report = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.pool.report < 0:
            raise OSError(errno, "no eventfd")
        self.report_descriptor = self.pool.report

    def __dealloc__(self):
        if self.pool != NULL:
            if self.pool.thread_count:
                self._end()
            if self.pool.report >= 0:
                close(self.pool.report)
            pthread_cond_destroy(&self.pool.awaited)
            pthread_cond_destroy(&self.pool.work)
            pthread_mutex_destroy(&self.pool.lock)
            free(self.pool)

    cdef Batch *_made(self, list descriptors, int is_awaited) except NULL:
        cdef int count = len(descriptors)
        cdef int number
        assert count > 0
        cdef Batch *batch = <Batch *>calloc(1, sizeof(Batch))
        if batch == NULL:
            raise MemoryError
        batch.descriptors = <int *>calloc(count, sizeof(int))
        batch.outcomes = <int *>calloc(count, sizeof(int))
        if batch.descriptors == NULL or batch.outcomes == NULL:
            free_batch(batch)
            raise MemoryError
        for number in range(count):
            batch.descriptors[number] = descriptors[number]
            batch.outcomes[number] = UNFINISHED
        batch.count = batch.left = count
        batch.is_awaited = is_awaited
        self.last_ticket += 1
        batch.ticket = self.last_ticket
        return batch

    cdef int _put(self, Batch *batch) except -1:
        """Queue a batch and see that threads take it."""
        cdef Pool *pool = self.pool
        cdef int wanted
        cdef int number
        batch.began_at = now()
        with nogil:
            pthread_mutex_lock(&pool.lock)
            if pool.first == NULL:
                pool.first = batch
            else:
                pool.last.link = batch
            pool.last = batch
            wanted = batch.count - pool.idle_count
            while wanted > 0 and pool.thread_count < pool.threads_max:
                if pthread_create(&pool.threads[pool.thread_count], NULL, run, pool) != 0:
                    break
                pool.thread_count += 1
                wanted -= 1
            for number in range(min(batch.count, pool.idle_count)):
                pthread_cond_signal(&pool.work)
            pthread_mutex_unlock(&pool.lock)
        if pool.thread_count == 0:
            # Not even one thread: the caller does it, as it would have done without us.
            run_here(pool)
        return 0

    def submit(self, list descriptors):
        cdef Batch *batch = self._made(descriptors, 0)
        cdef int ticket = batch.ticket
        self.batches[ticket] = <size_t>batch
        self._put(batch)
        return ticket

    def take(self):
        cdef Pool *pool = self.pool
        cdef Batch *batch
        cdef Batch *following
        cdef uint64_t value
        cdef list finished = []
        with nogil:
            read(pool.report, &value, 8)
            pthread_mutex_lock(&pool.lock)
            batch = pool.finished
            pool.finished = NULL
            pthread_mutex_unlock(&pool.lock)
        while batch != NULL:
            following = batch.link
            finished.append((batch.ticket, batch.ended_at - batch.began_at, self._outcomes(batch)))
            del self.batches[batch.ticket]
            free_batch(batch)
            batch = following
        finished.reverse()
        return finished

    def watch(self, int ticket):
        cdef Batch *batch = <Batch *><size_t>self.batches[ticket]
        with nogil:
            pthread_mutex_lock(&self.pool.lock)
            batch.is_watched = 1
        outcomes = self._outcomes(batch)
        pthread_mutex_unlock(&self.pool.lock)
        return outcomes

    cdef list _outcomes(self, Batch *batch):
        return [batch.outcomes[number] for number in range(batch.count)]

    def sync_all(self, list descriptors):
        cdef Pool *pool = self.pool
        cdef Batch *batch = self._made(descriptors, 1)
        self._put(batch)
        with nogil:
            pthread_mutex_lock(&pool.lock)
            while batch.left:
                pthread_cond_wait(&pool.awaited, &pool.lock)
            pthread_mutex_unlock(&pool.lock)
        outcomes = self._outcomes(batch)
        free_batch(batch)
        return outcomes

    def stop(self):
        self._end()

    cdef void _end(self) noexcept:
        cdef Pool *pool = self.pool
        cdef int number
        with nogil:
            pthread_mutex_lock(&pool.lock)
            pool.is_stopping = 1
            pthread_cond_broadcast(&pool.work)
            pthread_mutex_unlock(&pool.lock)
            for number in range(pool.thread_count):
                pthread_join(pool.threads[number], NULL)
            pool.thread_count = 0


cdef void run_here(Pool *pool) noexcept:
    """Sync what is queued on the caller's thread."""
    with nogil:
        pthread_mutex_lock(&pool.lock)
        pool.is_stopping += 1
        pthread_mutex_unlock(&pool.lock)
        run(pool)
        pthread_mutex_lock(&pool.lock)
        pool.is_stopping -= 1
        pthread_mutex_unlock(&pool.lock)
