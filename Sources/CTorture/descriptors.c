// Descriptors that are duplicated, reused, and many.
#define _GNU_SOURCE
#include "actor.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

// In the set is a number that the process does not have any more: the file is open as another one.
void play_duplicate(struct actor *actor) {
    int first = say_hello(actor->kind, 0);
    set_blocking(first, 0);
    actor->line = dup(first);
    int set = (int)MUST(actor, epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN};
    MUST(actor, epoll_ctl(set, EPOLL_CTL_ADD, first, &event));
    close(first);
    // Another file gets the number, which is never ready.
    int pipes[2];
    MUST(actor, pipe(pipes));
    for (;;) {
        if (MUST(actor, epoll_wait(set, &event, 1, -1)) == 1) take_all(actor, actor->line);
    }
}

// After each answer the line is another one, with the same number.
void play_reuse(struct actor *actor) {
    actor->line = say_hello(actor->kind, 0);
    for (;;) {
        uint64_t number;
        if (number = 0, take(actor, &number)) answer(actor->line, actor->kind, number);
        int next = say_hello(actor->kind, 0);
        MUST(actor, dup2(next, actor->line));
        close(next);
        struct pollfd entry = {actor->line, POLLIN, 0};
        while (MUST(actor, poll(&entry, 1, -1)) != 1) {}
    }
}

// Ten thousand descriptors in one set; a call is passed on to any of them.
enum { many = 10000, many_polled = 1500 };

struct many_events {
    struct actor *actor;
    int *descriptors;
    int count;
    uint64_t number;
};

static void answer_event(struct many_events *all, int descriptor) {
    uint64_t count = 0;
    errno = 0;
    if (read(descriptor, &count, sizeof count) != sizeof count || count != 1) NOTICE(all->actor);
    answer(all->actor->line, all->actor->kind, __atomic_load_n(&all->number, __ATOMIC_ACQUIRE));
}

static void *answer_set(void *argument) {
    struct many_events *all = argument;
    int set = (int)MUST(all->actor, epoll_create1(0));
    for (int index = 0; index < all->count; index++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = all->descriptors[index]};
        MUST(all->actor, epoll_ctl(set, EPOLL_CTL_ADD, all->descriptors[index], &event));
    }
    struct epoll_event event;
    for (;;) {
        if (MUST(all->actor, epoll_wait(set, &event, 1, -1)) == 1) answer_event(all, event.data.fd);
    }
}

static void *answer_entries(void *argument) {
    struct many_events *all = argument;
    struct pollfd *entries = calloc((size_t)all->count, sizeof *entries);
    for (int index = 0; index < all->count; index++)
        entries[index] = (struct pollfd){all->descriptors[index], POLLIN, 0};
    for (;;) {
        if (MUST(all->actor, poll(entries, (nfds_t)all->count, -1)) <= 0) continue;
        for (int index = 0; index < all->count; index++)
            if (entries[index].revents) answer_event(all, entries[index].fd);
    }
}

static void pass_on(struct actor *actor, int count, void *(*receive)(void *)) {
    actor->line = say_hello(actor->kind, 0);
    struct many_events all = {.actor = actor, .descriptors = calloc((size_t)count, sizeof(int)), .count = count};
    for (int index = 0; index < count; index++)
        all.descriptors[index] = (int)MUST(actor, eventfd(0, EFD_NONBLOCK));
    pthread_t thread;
    if (pthread_create(&thread, NULL, receive, &all) != 0) _exit(74);
    uint64_t number;
    while (take(actor, &number)) {
        __atomic_store_n(&all.number, number, __ATOMIC_RELEASE);
        uint64_t one = 1;
        int index = (int)random_between(actor, 0, count - 1);
        NOTICE_IF(actor, write(all.descriptors[index], &one, sizeof one) != sizeof one);
    }
}

void play_many(struct actor *actor) { pass_on(actor, many, answer_set); }
void play_many_polled(struct actor *actor) { pass_on(actor, many_polled, answer_entries); }
