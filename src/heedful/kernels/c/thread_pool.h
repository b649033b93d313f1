/* A thread pool that runs one task at a time. Between tasks and at barriers, workers spin before they
 * sleep or yield. If much of the time is spent waiting at barriers, other programs are using the cores.
 * The next tasks then run on the calling thread only. Their number doubles while the contention lasts.
 */
#ifndef HEEDFUL_THREAD_POOL
#define HEEDFUL_THREAD_POOL
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#define MAX_THREADS 256
#define BARRIER_SPINS 512 /* after that, yield the core */
#define IDLE_SPINS 8192   /* between tasks; after that, workers sleep */
#define WINDOW 50000000   /* nanoseconds of parallel work between measurements of contention */
#define CONTENDED 2       /* contended: a thread waits for more than 1 / CONTENDED of the time */
#define SERIAL_TASKS 8    /* number of tasks that first run on one thread after contention */
#define MAX_SERIAL_TASKS 512

typedef void task_function(void *argument, int64_t thread, int64_t threads);

static struct {
    pthread_mutex_t lock;
    pthread_cond_t task_ready;
    atomic_int busy, generation, sleeping, running; /* running: workers that have not finished */
    atomic_int arrived, phase;                      /* of the barrier */
    atomic_int serial;                              /* remaining tasks to run on one thread */
    int next_serial;
    int64_t elapsed;         /* nanoseconds of parallel work since the last measurement */
    _Atomic int64_t waited;  /* nanoseconds spent at barriers, in all threads */
    int64_t workers, threads;
    task_function *task;
    void *argument;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .task_ready = PTHREAD_COND_INITIALIZER,
          .next_serial = SERIAL_TASKS};

static inline void spin_wait(int spins, int limit) {
    if (spins > limit) sched_yield();
#if defined(__x86_64__) || defined(__i386__)
    else __builtin_ia32_pause();
#elif defined(__aarch64__)
    else __asm__ volatile("yield");
#endif
}

static inline int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* Wait until all threads of the task have arrived. */
static void barrier(int64_t threads) {
    if (threads == 1) return;
    const int phase = atomic_load(&pool.phase);
    if (atomic_fetch_add(&pool.arrived, 1) + 1 == threads) {
        atomic_store(&pool.arrived, 0);
        atomic_fetch_add(&pool.phase, 1);
        return;
    }
    int64_t since = 0;
    for (int spins = 0; atomic_load(&pool.phase) == phase; spins++) {
        spin_wait(spins, BARRIER_SPINS);
        if (spins == BARRIER_SPINS) since = now_ns();
    }
    if (since) atomic_fetch_add(&pool.waited, now_ns() - since);
}

static void wait_for_task(int seen) {
    for (int spins = 0; spins < IDLE_SPINS; spins++) {
        if (atomic_load(&pool.generation) != seen) return;
        spin_wait(0, BARRIER_SPINS);
    }
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add(&pool.sleeping, 1);
    while (atomic_load(&pool.generation) == seen) pthread_cond_wait(&pool.task_ready, &pool.lock);
    atomic_fetch_sub(&pool.sleeping, 1);
    pthread_mutex_unlock(&pool.lock);
}

struct worker {
    int64_t number;
    int seen;
};

static struct worker workers[MAX_THREADS];

static void *run_worker(void *own) {
    struct worker *self = own;
    for (int seen = self->seen;;) {
        wait_for_task(seen);
        seen = atomic_load(&pool.generation);
        if (self->number < pool.threads) pool.task(pool.argument, self->number, pool.threads);
        atomic_fetch_sub(&pool.running, 1);
    }
    return 0;
}

/* A child process does not inherit its parent's threads. */
static void reset_after_fork(void) {
    pthread_mutex_init(&pool.lock, 0);
    pthread_cond_init(&pool.task_ready, 0);
    pool.workers = 0;
    atomic_store(&pool.busy, 0);
    atomic_store(&pool.sleeping, 0);
    atomic_store(&pool.running, 0);
    atomic_store(&pool.arrived, 0);
}

static void start_workers(int64_t wanted) {
    static atomic_int registered;
    if (!atomic_exchange(&registered, 1)) pthread_atfork(0, 0, reset_after_fork);
    if (wanted > MAX_THREADS) wanted = MAX_THREADS;
    sigset_t all, before; /* signals are delivered to the program's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.workers < wanted) {
        struct worker *next = workers + pool.workers;
        *next = (struct worker){.number = pool.workers + 1, .seen = atomic_load(&pool.generation)};
        pthread_t thread;
        if (pthread_create(&thread, 0, run_worker, next)) break;
        pthread_detach(thread);
        pool.workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, 0);
}

/* Called after each parallel task. Under contention, makes the next tasks run on one thread. */
static void measure_contention(int64_t nanoseconds) {
    pool.elapsed += nanoseconds;
    if (pool.elapsed < WINDOW) return;
    const int contended =
        atomic_exchange(&pool.waited, 0) > pool.elapsed * (pool.threads - 1) / CONTENDED;
    pool.elapsed = 0;
    if (!contended) {
        pool.next_serial = SERIAL_TASKS;
        return;
    }
    atomic_store(&pool.serial, pool.next_serial);
    if (pool.next_serial < MAX_SERIAL_TASKS) pool.next_serial *= 2;
}

/* Run a task on at most `threads` threads. It runs on the calling thread only if another thread is
 * using the pool. */
static void parallel_for(task_function *task, void *argument, int64_t threads) {
    const int serial = atomic_load(&pool.serial);
    if (serial > 0) atomic_store(&pool.serial, serial - 1);
    if (threads < 2 || serial > 0 || atomic_exchange(&pool.busy, 1)) {
        task(argument, 0, 1);
        return;
    }
    if (pool.workers < threads - 1) start_workers(threads - 1);
    if (pool.workers < threads - 1) threads = pool.workers + 1;
    const int64_t began = now_ns();
    pool.task = task;
    pool.argument = argument;
    pool.threads = threads;
    atomic_store(&pool.running, (int)pool.workers);
    atomic_fetch_add(&pool.generation, 1);
    if (atomic_load(&pool.sleeping)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.task_ready);
        pthread_mutex_unlock(&pool.lock);
    }
    task(argument, 0, threads);
    for (int spins = 0; atomic_load(&pool.running); spins++) spin_wait(spins, BARRIER_SPINS);
    measure_contention(now_ns() - began);
    atomic_store(&pool.busy, 0);
}
#endif
