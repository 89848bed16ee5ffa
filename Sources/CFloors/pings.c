#define _GNU_SOURCE
#include "CFloors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { max_events = 512 };

static const char *const near_ping = "PING\n", *const near_pong = "PONG\n";
static const char *const far_ping = "ping\n", *const far_pong = "pong\n";

const int64_t *cfloors_pings_latencies(const struct cfloors_pings *pings) { return pings->latencies; }
const uint32_t *cfloors_pings_heard(const struct cfloors_pings *pings) { return pings->heard_of; }

static int send_text(int fd, const char *text) { return send(fd, text, 5, MSG_DONTWAIT | MSG_NOSIGNAL) == 5; }

// How many of `count` pings for each interval, evenly spread, are due by then.
static uint64_t due_at(int64_t since_start, size_t count, int64_t interval) {
    return (uint64_t)((__int128)since_start * (int64_t)count / interval);
}

// A loop that sends on many connections in turn, evenly spread, and receives in between.
struct pacer {
    const struct cfloors_pings *pings;
    size_t count;
    int64_t interval;
    // The start, and the time since then; 0 before it is ordered to run.
    int64_t start, passed;
    uint64_t next;
};

// Whether to continue. Pings from `next` up to, not including, `due` are to be sent now.
static int is_running(struct pacer *pacer, uint64_t *due) {
    uint32_t order = __atomic_load_n(&pacer->pings->order, __ATOMIC_ACQUIRE);
    *due = pacer->next;
    if (order != cfloors_pings_run) return order != cfloors_pings_end;
    int64_t now = cfloors_now();
    if (pacer->start == 0) pacer->start = now;
    pacer->passed = now - pacer->start;
    *due = due_at(pacer->passed, pacer->count, pacer->interval);
    return 1;
}

// Waits until something arrives, or a ping is due. Returns the number of events; -1 and errno.
static int wait_for_events(const struct pacer *pacer, int set, struct epoll_event *events) {
    int64_t pause = 20;
    if (pacer->start != 0) {
        int64_t at = (int64_t)((__int128)pacer->next * pacer->interval / (int64_t)pacer->count);
        int64_t left = (at - pacer->passed) / 1000000;
        pause = left < 1 ? 1 : left > 100 ? 100 : left;
    }
    int ready = epoll_wait(set, events, max_events, (int)pause);
    return ready < 0 && errno == EINTR ? 0 : ready;
}

int cfloors_ping_peer(int listener, size_t count, int64_t interval, struct cfloors_pings *pings) {
    if (count > cfloors_pings_capacity) return EINVAL;
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
    struct epoll_event events[max_events];
    struct pacer pacer = {.pings = pings, .count = count, .interval = interval};
    for (uint64_t due; is_running(&pacer, &due);) {
        for (; pacer.next < due; pacer.next++) {
            size_t index = pacer.next % count;
            pinged_at[index] = cfloors_now();
            if (send_text(sockets[index], far_ping)) pings->sent++; else pings->irregular++;
        }
        int ready = wait_for_events(&pacer, set, events);
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
                if (memcmp(bytes + at, near_ping, 5) == 0) {
                    pings->heard++;
                    pings->heard_of[index]++;
                    if (!send_text(sockets[index], near_pong)) pings->irregular++;
                } else if (memcmp(bytes + at, far_pong, 5) == 0) {
                    uint64_t place = pings->answered++;
                    if (place < cfloors_pings_capacity) pings->latencies[place] = cfloors_now() - pinged_at[index];
                } else {
                    pings->irregular++;
                }
            }
        }
    }
    return 0;
}

// A loop that pings all sockets as rarely as it may: none before the first window ends, and then every socket
// with an open window. Sockets are pinged in turns, so that the next one is always the one with the earliest
// end of its window.
struct bursts {
    const int *sockets;
    // When each was pinged last.
    int64_t *pinged_at;
    size_t count, next;
    int64_t interval, window;
    int has_begun, is_running;
};

// How early it wakes before a window ends: epoll_wait(2) counts in milliseconds.
enum { lead = 1000000 };

// Sends the pings that are due, but no more than the number of events handled at a time, because peers wait
// for answers meanwhile. Returns the milliseconds until the next; -1 and errno.
static int64_t ping_some(struct bursts *bursts, int64_t now) {
    if (!bursts->has_begun) {
        for (size_t index = 0; index < bursts->count; index++) bursts->pinged_at[index] = now - bursts->interval;
        bursts->has_begun = 1;
    }
    int64_t due = bursts->pinged_at[bursts->next] + bursts->interval - lead;
    if (now >= due) bursts->is_running = 1;
    for (size_t sent = 0; bursts->is_running; sent++) {
        int64_t *pinged_at = &bursts->pinged_at[bursts->next];
        if (now < *pinged_at + bursts->interval - bursts->window) bursts->is_running = 0;
        else if (sent == max_events) return 0;
        else if (!send_text(bursts->sockets[bursts->next], near_ping)) return -1;
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
    struct epoll_event events[max_events];
    while (code == 0) {
        uint32_t order = __atomic_load_n(&pings->order, __ATOMIC_ACQUIRE);
        if (order == cfloors_pings_end) break;
        int64_t pause = order == cfloors_pings_run ? ping_some(&bursts, cfloors_now()) : 20;
        int ready = pause < 0 ? -1 : epoll_wait(set, events, max_events, (int)pause);
        if (ready < 0 && errno != EINTR) code = errno;
        for (int event = 0; event < ready; event++) {
            int socket = sockets[events[event].data.u64];
            char bytes[64];
            ssize_t length = recv(socket, bytes, sizeof bytes, MSG_DONTWAIT);
            for (ssize_t at = 0; at + 5 <= length; at += 5) {
                if (memcmp(bytes + at, far_ping, 5) == 0 && !send_text(socket, far_pong)) code = errno;
            }
        }
    }
    free(bursts.pinged_at);
    if (set >= 0) close(set);
    return code;
}
