// Waits with timeouts, which must end in time.
#define _GNU_SOURCE
#include "actor.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/timerfd.h>
#include <unistd.h>

static int64_t pick_due(struct actor *actor) { return now() + random_between(actor, 300, 1500) * MILLISECOND; }

static void hello(struct actor *actor) {
    actor->line = say_hello(actor->kind, 0);
    set_blocking(actor->line, 0);
}

// Not below zero: it would wait for ever.
static int64_t until(int64_t due) { return due > now() ? due - now() : 0; }

void play_ppoll_timer(struct actor *actor) {
    hello(actor);
    int64_t due = pick_due(actor);
    for (;;) {
        struct pollfd entry = {actor->line, POLLIN, 0};
        struct timespec left = timespec_of(until(due));
        int count = (int)MUST(actor, ppoll(&entry, 1, &left, NULL));
        if (count > 0) take_all(actor, actor->line);
        if (count != 0) continue;
        report(actor->line, actor->kind, due);
        due = pick_due(actor);
    }
}

void play_select_timer(struct actor *actor) {
    hello(actor);
    int64_t due = pick_due(actor);
    for (;;) {
        fd_set readable;
        FD_ZERO(&readable);
        FD_SET(actor->line, &readable);
        int64_t left = until(due);
        struct timeval timeout = {left / 1000000000, left % 1000000000 / 1000 + 1};
        int count = (int)MUST(actor, select(actor->line + 1, &readable, NULL, NULL, &timeout));
        if (count > 0) take_all(actor, actor->line);
        if (count != 0) continue;
        report(actor->line, actor->kind, due);
        due = pick_due(actor);
    }
}

void play_epoll_timer(struct actor *actor) {
    hello(actor);
    int set = (int)MUST(actor, epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN};
    MUST(actor, epoll_ctl(set, EPOLL_CTL_ADD, actor->line, &event));
    int64_t due = pick_due(actor);
    for (;;) {
        int count = (int)MUST(actor, epoll_wait(set, &event, 1, (int)(until(due) / MILLISECOND) + 1));
        if (count > 0) take_all(actor, actor->line);
        if (now() < due) continue;
        report(actor->line, actor->kind, due);
        due = pick_due(actor);
    }
}

void play_condition_timer(struct actor *actor) {
    hello(actor);
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    for (;;) {
        // Relative to one of two clocks.
        clockid_t clock = random_between(actor, 0, 100) < 50 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
        pthread_condattr_t attributes;
        pthread_cond_t condition;
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, clock);
        pthread_cond_init(&condition, &attributes);
        int64_t due = pick_due(actor);
        struct timespec end = timespec_of(now_of(clock) + until(due));
        pthread_mutex_lock(&mutex);
        int code = 0;
        while (code == 0) code = pthread_cond_timedwait(&condition, &mutex, &end);
        pthread_mutex_unlock(&mutex);
        NOTICE_IF(actor, code != ETIMEDOUT);
        report(actor->line, actor->kind, due);
        pthread_cond_destroy(&condition);
    }
}

void play_sigwait_timer(struct actor *actor) {
    hello(actor);
    sigset_t none;
    sigemptyset(&none);
    sigaddset(&none, SIGRTMAX - 1);
    pthread_sigmask(SIG_BLOCK, &none, NULL);
    for (;;) {
        int64_t due = pick_due(actor);
        int result;
        do {
            struct timespec left = timespec_of(until(due));
            result = sigtimedwait(&none, NULL, &left);
        } while (result == -1 && errno == EINTR);
        NOTICE_IF(actor, result != -1 || now() < due);
        report(actor->line, actor->kind, due);
    }
}

void play_sleep(struct actor *actor) {
    hello(actor);
    for (;;) {
        int64_t due = pick_due(actor);
        struct timespec time = timespec_of(until(due));
        int code = 0;
        switch (random_between(actor, 0, 300) / 100) {
        case 0: code = nanosleep(&time, NULL); break;
        case 1:
            time = timespec_of(due);
            code = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
            break;
        default:
            time = timespec_of(now_of(CLOCK_REALTIME) + until(due));
            code = clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &time, NULL);
        }
        NOTICE_IF(actor, code != 0 || now() < due - MILLISECOND);
        report(actor->line, actor->kind, due);
    }
}

static void set_timer(struct actor *actor, int timer, int64_t due) {
    struct itimerspec setting = {.it_value = timespec_of(due)};
    MUST(actor, timerfd_settime(timer, TFD_TIMER_ABSTIME, &setting, NULL));
}

void play_timerfd(struct actor *actor) {
    hello(actor);
    int timer = (int)MUST(actor, timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
    int set = (int)MUST(actor, epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = timer};
    MUST(actor, epoll_ctl(set, EPOLL_CTL_ADD, timer, &event));
    event.data.fd = actor->line;
    MUST(actor, epoll_ctl(set, EPOLL_CTL_ADD, actor->line, &event));
    int64_t due = pick_due(actor);
    set_timer(actor, timer, due);
    for (;;) {
        if (MUST(actor, epoll_wait(set, &event, 1, -1)) != 1) continue;
        if (event.data.fd != timer) {
            take_all(actor, actor->line);
            continue;
        }
        uint64_t count = 0;
        NOTICE_IF(actor, read(timer, &count, sizeof count) != sizeof count || count != 1);
        report(actor->line, actor->kind, due);
        due = pick_due(actor);
        set_timer(actor, timer, due);
    }
}

void play_timerfd_read(struct actor *actor) {
    hello(actor);
    int timer = (int)MUST(actor, timerfd_create(CLOCK_MONOTONIC, 0));
    for (;;) {
        int64_t due = pick_due(actor);
        set_timer(actor, timer, due);
        uint64_t count = 0;
        NOTICE_IF(actor, read(timer, &count, sizeof count) != sizeof count || count != 1);
        report(actor->line, actor->kind, due);
    }
}
