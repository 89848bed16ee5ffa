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
const uint32_t *cfloors_pings_heard(const struct cfloors_pings *pings) { return pings->heard_of; }

static int say(int fd, const char *text) { return send(fd, text, 5, MSG_DONTWAIT | MSG_NOSIGNAL) == 5; }

// How many are due between two moments, if there are `count` of them in each interval, evenly spread.
static uint64_t due_at(int64_t since_start, size_t count, int64_t interval) {
    return (uint64_t)((__int128)since_start * (int64_t)count / interval);
}

// A loop that says something on many connections, one after the other and evenly spread, and listens in between.
struct beat {
    const struct cfloors_pings *pings;
    size_t count;
    int64_t interval;
    // When it began, and how long it has run; 0 before it is told to run.
    int64_t start, passed;
    uint64_t next;
};

// Whether it goes on. What is to be said now is said for `next` up to, not including, `due`.
static int goes_on(struct beat *beat, uint64_t *due) {
    uint32_t order = __atomic_load_n(&beat->pings->order, __ATOMIC_ACQUIRE);
    *due = beat->next;
    if (order != cfloors_pings_run) return order != cfloors_pings_end;
    int64_t now = cfloors_now();
    if (beat->start == 0) beat->start = now;
    beat->passed = now - beat->start;
    *due = due_at(beat->passed, beat->count, beat->interval);
    return 1;
}

// Waits until something arrives, or is to be said. How many events there are; -1: errno tells.
static int listen_for(const struct beat *beat, int set, struct epoll_event *events) {
    int64_t pause = 20;
    if (beat->start != 0) {
        int64_t at = (int64_t)((__int128)beat->next * beat->interval / (int64_t)beat->count);
        int64_t left = (at - beat->passed) / 1000000;
        pause = left < 1 ? 1 : left > 100 ? 100 : left;
    }
    int ready = epoll_wait(set, events, most_events, (int)pause);
    return ready < 0 && errno == EINTR ? 0 : ready;
}

int cfloors_ping_peer(int listener, size_t count, int64_t interval, struct cfloors_pings *pings) {
    if (count > cfloors_pings_room) return EINVAL;
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
    struct beat beat = {.pings = pings, .count = count, .interval = interval};
    for (uint64_t due; goes_on(&beat, &due);) {
        for (; beat.next < due; beat.next++) {
            size_t index = beat.next % count;
            pinged_at[index] = cfloors_now();
            if (say(sockets[index], their_ping)) pings->sent++; else pings->irregular++;
        }
        int ready = listen_for(&beat, set, events);
        if (ready < 0) return errno;
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
                    pings->heard_of[index]++;
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
    return 0;
}

// A loop that pings all sockets as rarely as it may: nobody before the end of a window has come, and then everybody whose
// window has begun. Sockets are pinged in turns, so that the one that comes next is always the one whose window ends first.
struct bursts {
    const int *sockets;
    // When each was pinged last.
    int64_t *pinged_at;
    size_t count, next;
    int64_t interval, window;
    int has_begun, goes_on;
};

// It wakes up so much before a window ends: epoll_wait(2) counts in milliseconds.
enum { lead = 1000000 };

// Sends what is to be sent now, but no more than events are looked at in one go: peers wait for answers meanwhile. How many
// milliseconds there are to the next; -1: errno tells.
static int64_t ping_some(struct bursts *bursts, int64_t now) {
    if (!bursts->has_begun) {
        for (size_t index = 0; index < bursts->count; index++) bursts->pinged_at[index] = now - bursts->interval;
        bursts->has_begun = 1;
    }
    int64_t due = bursts->pinged_at[bursts->next] + bursts->interval - lead;
    if (now >= due) bursts->goes_on = 1;
    for (size_t sent = 0; bursts->goes_on; sent++) {
        int64_t *pinged_at = &bursts->pinged_at[bursts->next];
        if (now < *pinged_at + bursts->interval - bursts->window) bursts->goes_on = 0;
        else if (sent == most_events) return 0;
        else if (!say(bursts->sockets[bursts->next], our_ping)) return -1;
        else {
            *pinged_at = now;
            bursts->next = (bursts->next + 1) % bursts->count;
        }
    }
    int64_t left = (bursts->pinged_at[bursts->next] + bursts->interval - lead - now) / 1000000 + 1;
    return left > 100 ? 100 : left;
}

int cfloors_pinger(
    const int *sockets, size_t count, int64_t interval, int64_t window, struct cfloors_pings *pings) {
    struct bursts bursts = {.sockets = sockets, .count = count, .interval = interval, .window = window};
    bursts.pinged_at = calloc(count, sizeof *bursts.pinged_at);
    int set = epoll_create1(EPOLL_CLOEXEC);
    int code = !bursts.pinged_at || set < 0 ? errno : 0;
    for (size_t index = 0; index < count && code == 0; index++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = index};
        if (epoll_ctl(set, EPOLL_CTL_ADD, sockets[index], &event) != 0) code = errno;
    }
    struct epoll_event events[most_events];
    while (code == 0) {
        uint32_t order = __atomic_load_n(&pings->order, __ATOMIC_ACQUIRE);
        if (order == cfloors_pings_end) break;
        int64_t pause = order == cfloors_pings_run ? ping_some(&bursts, cfloors_now()) : 20;
        int ready = pause < 0 ? -1 : epoll_wait(set, events, most_events, (int)pause);
        if (ready < 0 && errno != EINTR) code = errno;
        for (int event = 0; event < ready; event++) {
            int socket = sockets[events[event].data.u64];
            char bytes[64];
            ssize_t length = recv(socket, bytes, sizeof bytes, MSG_DONTWAIT);
            for (ssize_t at = 0; at + 5 <= length; at += 5) {
                if (memcmp(bytes + at, their_ping, 5) == 0 && !say(socket, their_pong)) code = errno;
            }
        }
    }
    free(bursts.pinged_at);
    if (set >= 0) close(set);
    return code;
}
