// Threads that hand calls on to each other, come and go, and have descriptors of their own.
#define _GNU_SOURCE
#include "actor.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

// MARK: By a futex

struct handover {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    uint64_t numbers[64];
    unsigned put, taken;
};
static struct handover handovers[4096];

static void answer_handed_over(struct actor *actor) {
    struct handover *handover = &handovers[actor->line];
    for (;;) {
        pthread_mutex_lock(&handover->mutex);
        while (handover->put == handover->taken) pthread_cond_wait(&handover->condition, &handover->mutex);
        uint64_t number = handover->numbers[handover->taken++ % 64];
        pthread_mutex_unlock(&handover->mutex);
        answer(actor->line, actor->kind, number);
    }
}

void play_condition(struct actor *actor) {
    actor->line = say_hello(actor->kind, 0);
    struct handover *handover = &handovers[actor->line];
    pthread_mutex_init(&handover->mutex, NULL);
    pthread_cond_init(&handover->condition, NULL);
    begin(answer_handed_over, actor);
    uint64_t number;
    while (take(actor, &number)) {
        pthread_mutex_lock(&handover->mutex);
        handover->numbers[handover->put++ % 64] = number;
        pthread_mutex_unlock(&handover->mutex);
        pthread_cond_signal(&handover->condition);
    }
}

// MARK: By an eventfd

static int events[4096];

static void answer_events(struct actor *actor) {
    uint64_t number;
    // A semaphore would not carry the number.
    while (MUST(actor, read(events[actor->line], &number, sizeof number)) == sizeof number)
        answer(actor->line, actor->kind, number);
}

void play_eventfd(struct actor *actor) {
    actor->line = say_hello(actor->kind, 0);
    events[actor->line] = (int)MUST(actor, eventfd(0, 0));
    begin(answer_events, actor);
    uint64_t number;
    while (take(actor, &number)) {
        // One at a time: the checker does not call again before the answer.
        NOTICE_IF(actor, write(events[actor->line], &number, sizeof number) != sizeof number);
    }
}

// MARK: Threads that come and go

struct errand {
    struct actor actor;
    uint64_t number;
};

static void *run_errand(void *argument) {
    struct errand errand = *(struct errand *)argument;
    free(argument);
    if (errand.number % 3) rest(random_between(&errand.actor, 0, 150) * MILLISECOND);
    answer(errand.actor.line, errand.actor.kind, errand.number);
    return NULL;
}

void play_threads(struct actor *actor) {
    actor->line = say_hello(actor->kind, 0);
    uint64_t number;
    while (take(actor, &number)) {
        struct errand *errand = malloc(sizeof *errand);
        *errand = (struct errand){*actor, number};
        errand->actor.seed = (unsigned)random_between(actor, 0, 1000000);
        pthread_t thread;
        int code = pthread_create(&thread, NULL, run_errand, errand);
        NOTICE_IF(actor, code != 0);
        if (number % 2) {
            pthread_detach(thread);
        } else {
            pthread_join(thread, NULL);
        }
    }
}

// MARK: A thread with descriptors of its own

void play_unshared(struct actor *actor) {
    actor->line = say_hello(actor->kind, 0);
    // For the other threads the number is that of a pipe that nothing is written to.
    int number = dup(actor->line), mine = dup(actor->line), pipes[2];
    if (pipe(pipes) != 0 || dup2(pipes[0], number) < 0) _exit(73);
    if (unshare(CLONE_FILES) != 0) {
        NOTICE(actor);
        return;
    }
    dup2(mine, number);
    actor->line = number;
    set_blocking(number, 0);
    for (;;) {
        struct pollfd entry = {number, POLLIN, 0};
        if (MUST(actor, poll(&entry, 1, -1)) > 0) take_all(actor, number);
    }
}
