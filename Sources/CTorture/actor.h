// The parts of the program, which its actors share.
#pragma once

#include "CTorture.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

// Set before any thread begins.
extern const char *endpoint;
extern uint32_t program;
extern const char *own_path;

struct actor {
    int kind;
    unsigned seed;
    int line;
};

struct kind {
    const char *name;
    void (*play)(struct actor *);
    enum ctorture_role role;
};
extern const struct kind kinds[];

// Connects to the checker. Ends the process if there is none any more.
int say_hello(int kind, uint64_t reach);
void answer(int line, int kind, uint64_t number);
void notice(int line, int kind, int value);
void report_cut(int line, int kind);
// Reports a timer that has ended and was due at this time.
void report(int line, int kind, int64_t due);
// Reads a call that is there, or waits for one. Ends the process with the line. 0: there is none (a line that does not block).
int take(struct actor *actor, uint64_t *number);
// A descriptor on which a call may be, of which there may be several.
void take_all(struct actor *actor, int descriptor);

int64_t now_of(clockid_t clock);
static inline int64_t now(void) { return now_of(CLOCK_MONOTONIC); }
int64_t random_between(struct actor *actor, int64_t first, int64_t last);
void rest(int64_t nanoseconds);
struct timespec timespec_of(int64_t nanoseconds);
void set_blocking(int descriptor, int blocks);
void begin(void (*play)(struct actor *), const struct actor *actor);

#define MILLISECOND INT64_C(1000000)
#define NOTICE(actor) notice((actor)->line, (actor)->kind, errno ? errno : -__LINE__)
#define NOTICE_IF(actor, condition) \
    do { \
        errno = 0; \
        if (condition) NOTICE(actor); \
    } while (0)
// A call that must not fail, except that a wait is interrupted.
#define MUST(actor, call) must(actor, (call), __LINE__)
static inline long must(struct actor *actor, long result, int line) {
    if (result < 0 && errno != EINTR) notice(actor->line, actor->kind, errno ? errno : -line);
    return result;
}

// Of waits.c, timers.c, threads.c, processes.c and descriptors.c.
void play_level(struct actor *);
void play_edge(struct actor *);
void play_oneshot(struct actor *);
void play_exclusive(struct actor *);
void play_shared(struct actor *);
void play_nested(struct actor *);
void play_poll(struct actor *);
void play_select(struct actor *);
void play_read(struct actor *);
void play_recvmsg(struct actor *);
void play_accept(struct actor *);
void play_flood(struct actor *);
void play_halves(struct actor *);

void play_ppoll_timer(struct actor *);
void play_select_timer(struct actor *);
void play_epoll_timer(struct actor *);
void play_condition_timer(struct actor *);
void play_sigwait_timer(struct actor *);
void play_sleep(struct actor *);
void play_timerfd(struct actor *);
void play_timerfd_read(struct actor *);

void play_condition(struct actor *);
void play_eventfd(struct actor *);
void play_threads(struct actor *);
void play_unshared(struct actor *);

void play_fork(struct actor *);
void play_vfork(struct actor *);
void play_stopped(struct actor *);
void play_mortal(struct actor *);
void play_exec(struct actor *);
void play_sigwait(struct actor *);
void play_signalfd(struct actor *);
void play_handler(struct actor *);

void play_duplicate(struct actor *);
void play_reuse(struct actor *);
void play_many(struct actor *);
void play_many_polled(struct actor *);

// Continues after execve(2): for vfork and exec.
int answer_and_end(char **arguments);
int play_after_exec(char **arguments);
