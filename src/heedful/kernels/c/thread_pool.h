/* Threads that do one thing together. Between two things, and where they meet within one, they wait
 * without the kernel's help for as long as that is short. Where much of the time is spent waiting,
 * other programs have the cores: some things are then done by one thread alone, and twice as many
 * each time that it turns out to be so still.
 */
#ifndef TEAM
#define TEAM
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#define MOST_THREADS 256
#define SPINS 512       /* where threads meet: after that others may have the core */
#define PATIENCE 8192   /* between two things: after that they sleep */
#define WATCH 50000000  /* nanoseconds of doing things together after which it is judged */
#define CROWDED 2       /* whether more than one in so many of them was spent waiting, by one thread */
#define ALONE 8         /* things that are then done by one thread, at first */
#define MOST_ALONE 512

typedef void task(void *given, int64_t number, int64_t threads);

static struct {
    pthread_mutex_t lock;
    pthread_cond_t begun;
    atomic_int taken, thing, asleep, left; /* left: workers that have not finished this thing */
    atomic_int arrived, turn;              /* where they meet */
    atomic_int alone;                      /* things that one thread still does by itself */
    int next_alone;
    int64_t passed;          /* nanoseconds of doing things together since that was judged, */
    _Atomic int64_t waited;  /* and those of waiting where threads meet, in all of them */
    int64_t workers, threads;
    task *work;
    void *given;
} team = {.lock = PTHREAD_MUTEX_INITIALIZER, .begun = PTHREAD_COND_INITIALIZER,
          .next_alone = ALONE};

static inline void rest(int spins, int most) {
    if (spins > most) sched_yield();
#if defined(__x86_64__) || defined(__i386__)
    else __builtin_ia32_pause();
#elif defined(__aarch64__)
    else __asm__ volatile("yield");
#endif
}

static inline int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* All of a task's threads wait here for one another. */
static void meet(int64_t threads) {
    if (threads == 1) return;
    const int turn = atomic_load(&team.turn);
    if (atomic_fetch_add(&team.arrived, 1) + 1 == threads) {
        atomic_store(&team.arrived, 0);
        atomic_fetch_add(&team.turn, 1);
        return;
    }
    int64_t since = 0;
    for (int spins = 0; atomic_load(&team.turn) == turn; spins++) {
        rest(spins, SPINS);
        if (spins == SPINS) since = now();
    }
    if (since) atomic_fetch_add(&team.waited, now() - since);
}

static void await_thing(int seen) {
    for (int spins = 0; spins < PATIENCE; spins++) {
        if (atomic_load(&team.thing) != seen) return;
        rest(0, SPINS);
    }
    pthread_mutex_lock(&team.lock);
    atomic_fetch_add(&team.asleep, 1);
    while (atomic_load(&team.thing) == seen) pthread_cond_wait(&team.begun, &team.lock);
    atomic_fetch_sub(&team.asleep, 1);
    pthread_mutex_unlock(&team.lock);
}

struct worker {
    int64_t number;
    int seen;
};

static struct worker workers[MOST_THREADS];

static void *worker(void *own) {
    struct worker *self = own;
    for (int seen = self->seen;;) {
        await_thing(seen);
        seen = atomic_load(&team.thing);
        if (self->number < team.threads) team.work(team.given, self->number, team.threads);
        atomic_fetch_sub(&team.left, 1);
    }
    return 0;
}

/* A child process has none of its parent's threads. */
static void forget(void) {
    pthread_mutex_init(&team.lock, 0);
    pthread_cond_init(&team.begun, 0);
    team.workers = 0;
    atomic_store(&team.taken, 0);
    atomic_store(&team.asleep, 0);
    atomic_store(&team.left, 0);
    atomic_store(&team.arrived, 0);
}

static void hire(int64_t wanted) {
    static atomic_int told;
    if (!atomic_exchange(&told, 1)) pthread_atfork(0, 0, forget);
    if (wanted > MOST_THREADS) wanted = MOST_THREADS;
    sigset_t all, before; /* signals are for the program's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (team.workers < wanted) {
        struct worker *next = workers + team.workers;
        *next = (struct worker){.number = team.workers + 1, .seen = atomic_load(&team.thing)};
        pthread_t thread;
        if (pthread_create(&thread, 0, worker, next)) break;
        pthread_detach(thread);
        team.workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, 0);
}

/* After a thing that took so long: whether the next ones are done by one thread alone. */
static void judge(int64_t nanoseconds) {
    team.passed += nanoseconds;
    if (team.passed < WATCH) return;
    const int crowded = atomic_exchange(&team.waited, 0) > team.passed * (team.threads - 1) / CROWDED;
    team.passed = 0;
    if (!crowded) {
        team.next_alone = ALONE;
        return;
    }
    atomic_store(&team.alone, team.next_alone);
    if (team.next_alone < MOST_ALONE) team.next_alone *= 2;
}

/* Do a task with up to so many threads; with one where somebody else has the others. */
static void together(task *work, void *given, int64_t threads) {
    const int alone = atomic_load(&team.alone);
    if (alone > 0) atomic_store(&team.alone, alone - 1);
    if (threads < 2 || alone > 0 || atomic_exchange(&team.taken, 1)) {
        work(given, 0, 1);
        return;
    }
    if (team.workers < threads - 1) hire(threads - 1);
    if (team.workers < threads - 1) threads = team.workers + 1;
    const int64_t began = now();
    team.work = work;
    team.given = given;
    team.threads = threads;
    atomic_store(&team.left, (int)team.workers);
    atomic_fetch_add(&team.thing, 1);
    if (atomic_load(&team.asleep)) {
        pthread_mutex_lock(&team.lock);
        pthread_cond_broadcast(&team.begun);
        pthread_mutex_unlock(&team.lock);
    }
    work(given, 0, threads);
    for (int spins = 0; atomic_load(&team.left); spins++) rest(spins, SPINS);
    judge(now() - began);
    atomic_store(&team.taken, 0);
}
#endif
