#define _GNU_SOURCE
#include "CFloors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { most_events = 512 };

static const char *const our_ping = "PING\n", *const our_pong = "PONG\n";
static const char *const their_ping = "ping\n", *const their_pong = "pong\n";

const int64_t *cfloors_pings_latencies(const struct cfloors_pings *pings) { return pings->latencies; }

static int say(int fd, const char *text) { return send(fd, text, 5, MSG_DONTWAIT | MSG_NOSIGNAL) == 5; }

// How many are due between two moments, if there are `count` of them in each interval, evenly spread.
static uint64_t due_at(int64_t since_start, size_t count, int64_t interval) {
    return (uint64_t)((__int128)since_start * (int64_t)count / interval);
}

// The pause to the next one, in milliseconds.
static int pause_for(uint64_t next, int64_t since_start, size_t count, int64_t interval) {
    int64_t at = (int64_t)((__int128)next * interval / (int64_t)count);
    int64_t left = (at - since_start) / 1000000;
    return left < 1 ? 1 : left > 100 ? 100 : (int)left;
}

int cfloors_ping_peer(int listener, size_t count, int64_t interval, struct cfloors_pings *pings) {
    int *sockets = calloc(count, sizeof *sockets);
    int64_t *pinged_at = calloc(count, sizeof *pinged_at);
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (!sockets || !pinged_at || set < 0) return errno;
    for (size_t index = 0; index < count; index++) {
        sockets[index] = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (sockets[index] < 0) return errno;
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = index};
        if (epoll_ctl(set, EPOLL_CTL_ADD, sockets[index], &event) != 0) return errno;
        __atomic_store_n(&pings->connected, index + 1, __ATOMIC_RELEASE);
    }
    struct epoll_event events[most_events];
    int64_t start = 0;
    uint64_t next = 0;
    for (;;) {
        uint32_t order = __atomic_load_n(&pings->order, __ATOMIC_ACQUIRE);
        int timeout = 20;
        if (order == cfloors_pings_end) return 0;
        if (order == cfloors_pings_run) {
            int64_t now = cfloors_now();
            if (start == 0) start = now;
            for (uint64_t due = due_at(now - start, count, interval); next < due; next++) {
                size_t index = next % count;
                pinged_at[index] = cfloors_now();
                if (say(sockets[index], their_ping)) pings->sent++; else pings->irregular++;
            }
            timeout = pause_for(next, now - start, count, interval);
        }
        int ready = epoll_wait(set, events, most_events, timeout);
        if (ready < 0 && errno != EINTR) return errno;
        for (int event = 0; event < ready; event++) {
            size_t index = events[event].data.u64;
            char bytes[64];
            ssize_t length = recv(sockets[index], bytes, sizeof bytes, MSG_DONTWAIT);
            if (length <= 0 || length % 5 != 0) {
                pings->irregular++;
                epoll_ctl(set, EPOLL_CTL_DEL, sockets[index], NULL);
                continue;
            }
            for (ssize_t at = 0; at < length; at += 5) {
                if (memcmp(bytes + at, our_ping, 5) == 0) {
                    pings->heard++;
                    if (!say(sockets[index], our_pong)) pings->irregular++;
                } else if (memcmp(bytes + at, their_pong, 5) == 0) {
                    uint64_t place = pings->answered++;
                    if (place < cfloors_pings_room) pings->latencies[place] = cfloors_now() - pinged_at[index];
                } else {
                    pings->irregular++;
                }
            }
        }
    }
}

int cfloors_pinger(const int *sockets, size_t count, int64_t interval, struct cfloors_pings *pings) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0) return errno;
    for (size_t index = 0; index < count; index++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = index};
        if (epoll_ctl(set, EPOLL_CTL_ADD, sockets[index], &event) != 0) return errno;
    }
    struct epoll_event events[most_events];
    int64_t start = 0;
    uint64_t next = 0;
    for (;;) {
        uint32_t order = __atomic_load_n(&pings->order, __ATOMIC_ACQUIRE);
        int timeout = 20;
        if (order == cfloors_pings_end) return 0;
        if (order == cfloors_pings_run) {
            int64_t now = cfloors_now();
            if (start == 0) start = now;
            for (uint64_t due = due_at(now - start, count, interval); next < due; next++) {
                if (!say(sockets[next % count], our_ping)) return errno;
            }
            timeout = pause_for(next, now - start, count, interval);
        }
        int ready = epoll_wait(set, events, most_events, timeout);
        if (ready < 0 && errno != EINTR) return errno;
        for (int event = 0; event < ready; event++) {
            int socket = sockets[events[event].data.u64];
            char bytes[64];
            ssize_t length = recv(socket, bytes, sizeof bytes, MSG_DONTWAIT);
            for (ssize_t at = 0; at + 5 <= length; at += 5) {
                if (memcmp(bytes + at, their_ping, 5) == 0 && !say(socket, their_pong)) return errno;
            }
        }
    }
}
