// Waits for input, one after the other of the kernel's interfaces.
#define _GNU_SOURCE
#include "actor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

static int set_of(struct actor *actor, int descriptor, uint32_t events) {
    int set = (int)MUST(actor, epoll_create1(0));
    struct epoll_event event = {.events = events, .data.fd = descriptor};
    MUST(actor, epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &event));
    return set;
}

static void hello(struct actor *actor, int blocks) {
    actor->line = say_hello(actor->kind, 0);
    set_blocking(actor->line, blocks);
}

void play_level(struct actor *actor) {
    hello(actor, 1);
    int set = set_of(actor, actor->line, EPOLLIN);
    struct epoll_event event;
    uint64_t number;
    for (;;) {
        // One at a time: the next one is still there.
        if (MUST(actor, epoll_wait(set, &event, 1, -1)) == 1 && take(actor, &number))
            answer(actor->line, actor->kind, number);
    }
}

void play_edge(struct actor *actor) {
    hello(actor, 0);
    int set = set_of(actor, actor->line, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    struct epoll_event events[4];
    for (;;) {
        if (MUST(actor, epoll_wait(set, events, 4, -1)) > 0) take_all(actor, actor->line);
    }
}

void play_oneshot(struct actor *actor) {
    hello(actor, 0);
    int set = set_of(actor, actor->line, EPOLLIN | EPOLLONESHOT);
    struct epoll_event event;
    for (;;) {
        if (MUST(actor, epoll_pwait(set, &event, 1, -1, NULL)) != 1) continue;
        take_all(actor, actor->line);
        event.events = EPOLLIN | EPOLLONESHOT;
        MUST(actor, epoll_ctl(set, EPOLL_CTL_MOD, actor->line, &event));
    }
}

static void wait_exclusively(struct actor *actor) {
    int set = set_of(actor, actor->line, EPOLLIN | EPOLLEXCLUSIVE);
    struct epoll_event event;
    for (;;) {
        if (MUST(actor, epoll_wait(set, &event, 1, -1)) == 1) take_all(actor, actor->line);
    }
}

// Several sets have the same socket, and one of them gets the event.
void play_exclusive(struct actor *actor) {
    hello(actor, 0);
    begin(wait_exclusively, actor);
    begin(wait_exclusively, actor);
    wait_exclusively(actor);
}

static int shared_set[4096];

static void wait_for_shared(struct actor *actor) {
    struct epoll_event event;
    for (;;) {
        if (MUST(actor, epoll_wait(shared_set[actor->line], &event, 1, -1)) == 1) take_all(actor, actor->line);
    }
}

// Several threads wait for one set, which tells one of them.
void play_shared(struct actor *actor) {
    hello(actor, 0);
    shared_set[actor->line] = set_of(actor, actor->line, EPOLLIN | EPOLLET);
    begin(wait_for_shared, actor);
    wait_for_shared(actor);
}

void play_nested(struct actor *actor) {
    hello(actor, 0);
    int inner = set_of(actor, actor->line, EPOLLIN | EPOLLET);
    int outer = set_of(actor, inner, EPOLLIN);
    struct epoll_event event;
    for (;;) {
        if (MUST(actor, epoll_wait(outer, &event, 1, -1)) != 1) continue;
        while (epoll_wait(inner, &event, 1, 0) == 1) take_all(actor, actor->line);
    }
}

// The same socket twice, and one left out.
void play_poll(struct actor *actor) {
    hello(actor, 0);
    for (;;) {
        struct pollfd entries[] = {
            {actor->line, POLLPRI, 0}, {-1, POLLIN, 0}, {actor->line, POLLIN, 0}, {actor->line, 0, 0}};
        if (MUST(actor, poll(entries, 4, -1)) > 0) take_all(actor, actor->line);
    }
}

void play_select(struct actor *actor) {
    hello(actor, 0);
    int high = (int)MUST(actor, fcntl(actor->line, F_DUPFD, 900));
    for (;;) {
        fd_set readable, exceptional;
        FD_ZERO(&readable);
        FD_ZERO(&exceptional);
        FD_SET(high, &readable);
        FD_SET(actor->line, &exceptional);
        if (MUST(actor, select(high + 1, &readable, NULL, &exceptional, NULL)) > 0) take_all(actor, high);
    }
}

void play_read(struct actor *actor) {
    hello(actor, 1);
    uint64_t number;
    while (take(actor, &number)) answer(actor->line, actor->kind, number);
}

void play_recvmsg(struct actor *actor) {
    hello(actor, 1);
    for (;;) {
        struct ctorture_message call;
        struct iovec parts[] = {{&call, 7}, {(char *)&call + 7, sizeof call - 7}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t count = recvmsg(actor->line, &message, 0);
        if (count == 0) _exit(0);
        NOTICE_IF(actor, count != sizeof call);
        answer(actor->line, actor->kind, call.number);
    }
}

// Each connection gets the number of the one before.
void play_accept(struct actor *actor) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 16) != 0) _exit(72);
    getsockname(listener, (struct sockaddr *)&address, &length);
    actor->line = say_hello(actor->kind, 1000 + (uint64_t)ntohs(address.sin_port));
    for (;;) {
        int connection = (int)MUST(actor, accept(listener, NULL, NULL));
        if (connection < 0) continue;
        struct ctorture_message call;
        ssize_t count = recv(connection, &call, sizeof call, MSG_WAITALL);
        NOTICE_IF(actor, count != sizeof call);
        close(connection);
        if (count == sizeof call) answer(actor->line, actor->kind, call.number);
    }
}

// Writes more than the checker has room for, which then reads it: nothing may cut the write short.
void play_flood(struct actor *actor) {
    hello(actor, 1);
    char *flood = calloc(1, CTORTURE_FLOOD);
    uint64_t number;
    while (take(actor, &number)) {
        ssize_t count = write(actor->line, flood, CTORTURE_FLOOD);
        // The rest, for the checker.
        for (ssize_t sent = count; sent >= 0 && sent < CTORTURE_FLOOD;)
            sent += write(actor->line, flood, (size_t)(CTORTURE_FLOOD - sent));
        NOTICE_IF(actor, count <= 0);
        if (count < CTORTURE_FLOOD) report_cut(actor->line, actor->kind);
        answer(actor->line, actor->kind, number);
    }
}

// Waits for all of a call, which comes in two halves.
void play_halves(struct actor *actor) {
    hello(actor, 1);
    for (;;) {
        struct pollfd entry = {actor->line, POLLIN, 0};
        if (MUST(actor, poll(&entry, 1, -1)) != 1) continue;
        struct ctorture_message call;
        ssize_t count = recv(actor->line, &call, sizeof call, MSG_WAITALL);
        if (count == 0) _exit(0);
        NOTICE_IF(actor, count < 0);
        if (count > 0 && count < (ssize_t)sizeof call) {
            report_cut(actor->line, actor->kind);
            recv(actor->line, (char *)&call + count, sizeof call - (size_t)count, MSG_WAITALL);
        }
        answer(actor->line, actor->kind, call.number);
    }
}
