#define _GNU_SOURCE
#include "crowd.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { most_events = 256, buffer_room = 1 << 18, most_joining = 64 };

static const char *const room_names[] = {"idle", "pair", "talk", "stir"};

// The key and its answer are RFC 6455's own.
static const char upgrade[] =
    "GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
static const char acceptance[] = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

int64_t now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

uint64_t draw(struct cchat_crowd *crowd, uint64_t below) {
    uint64_t z = crowd->random += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return (z ^ z >> 31) % below;
}

struct cchat_crowd *cchat_crowd_make(uint64_t seed) {
    struct cchat_crowd *crowd = calloc(1, sizeof *crowd);
    if (!crowd) abort();
    crowd->buffer = malloc(buffer_room);
    crowd->set = epoll_create1(EPOLL_CLOEXEC);
    if (!crowd->buffer || crowd->set < 0) abort();
    crowd->random = seed;
    crowd->patience = INT64_C(10000000000);
    return crowd;
}

void cchat_crowd_free(struct cchat_crowd *crowd) {
    for (size_t index = 0; index < crowd->count; index++) {
        if (crowd->connections[index].fd >= 0) close(crowd->connections[index].fd);
        free(crowd->connections[index].rest);
    }
    close(crowd->set);
    free(crowd->connections);
    free(crowd->buffer);
    free(crowd);
}

void cchat_be_patient(struct cchat_crowd *crowd, int64_t milliseconds) {
    crowd->patience = milliseconds * 1000000;
}

const char *cchat_complaint(const struct cchat_crowd *crowd) { return crowd->complaint; }

uint64_t cchat_ended(const struct cchat_crowd *crowd) { return crowd->ended; }

void complain_of(struct cchat_crowd *crowd, size_t index, const char *what, const void *text, size_t length) {
    if (crowd->complaint[0]) return;
    const struct connection *connection = &crowd->connections[index];
    snprintf(
        crowd->complaint, sizeof crowd->complaint, "member %u of room %s-%u: %s%.*s", connection->member,
        room_names[connection->kind], connection->room, what, (int)(length < 128 ? length : 128),
        (const char *)text);
}

static void end(struct cchat_crowd *crowd, size_t index, const char *why) {
    struct connection *connection = &crowd->connections[index];
    if (connection->stage == stage_ended) return;
    complain_of(crowd, index, why, "", 0);
    connection->stage = stage_ended;
    crowd->ended++;
    close(connection->fd);
    connection->fd = -1;
}

int give(struct cchat_crowd *crowd, size_t index, const void *bytes, size_t count) {
    // Nobody is so far behind that it would not fit.
    ssize_t sent = send(crowd->connections[index].fd, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == (ssize_t)count) return 0;
    end(crowd, index, "cannot send to the server");
    return EPROTO;
}

// What a member says: nothing else is to be heard of it. Returns the length.
static int put_text(char *place, size_t room, uint64_t member, uint64_t sequence) {
    return snprintf(
        place, room, "%llu %llu was said by somebody to everybody", (unsigned long long)member,
        (unsigned long long)sequence);
}

size_t put_saying(struct cchat_crowd *crowd, size_t index, uint64_t sequence, unsigned char *place) {
    char said[128], text[200];
    put_text(said, sizeof said, crowd->connections[index].member, sequence);
    int length = snprintf(text, sizeof text, "{\"type\":\"say\",\"text\":\"%s\"}", said);
    return cchat_put_frame(place, cchat_text, text, (size_t)length, (uint32_t)draw(crowd, UINT32_MAX));
}

int say(struct cchat_crowd *crowd, size_t index, uint64_t sequence) {
    unsigned char frame[256];
    return give(crowd, index, frame, put_saying(crowd, index, sequence, frame));
}

// ── What comes ───────────────────────────────────────────────────────────────────────────────────────────────

static int is_equal(const char *value, size_t length, const char *text) {
    return value && length == strlen(text) && memcmp(value, text, length) == 0;
}

static void hear_object(struct cchat_crowd *crowd, size_t index, const char *object, size_t count) {
    size_t length;
    const char *type = cchat_member(object, count, "type", &length);
    if (is_equal(type, length, "message")) {
        const char *text = cchat_member(object, count, "text", &length);
        int64_t number = cchat_number(object, count, "number");
        if (!text || number < 0) return complain_of(crowd, index, "understands nothing of ", object, count);
        char *next, said[128];
        size_t heard = length;
        struct message message = {.number = (uint64_t)number};
        message.sender = strtoull(text, &next, 10);
        message.sequence = strtoull(next, &next, 10);
        length = (size_t)put_text(said, sizeof said, message.sender, message.sequence);
        if (heard != length || memcmp(text, said, length) != 0) message.sequence = 0;
        if (crowd->hear) crowd->hear(crowd->listener, index, &message);
    } else if (is_equal(type, length, "welcome")) {
        if (crowd->connections[index].stage == stage_joining) crowd->joined++;
        crowd->connections[index].stage = stage_joined;
    } else if (!type || is_equal(type, length, "error")) {
        complain_of(crowd, index, "was told ", object, count);
    }
}

static int deal_with_frame(struct cchat_crowd *crowd, size_t index, const struct cchat_frame *frame) {
    unsigned char answer[cchat_header_room + 125];
    switch (frame->opcode) {
    case cchat_text:
        hear_object(crowd, index, (const char *)frame->payload, frame->length);
        return 1;
    case cchat_ping:
        if (frame->length > 125) return 0;
        return give(
                   crowd, index, answer,
                   cchat_put_frame(
                       answer, cchat_pong, frame->payload, frame->length, (uint32_t)draw(crowd, UINT32_MAX)))
            == 0;
    case cchat_pong: return 1;
    default: return 0;
    }
}

static void join_room(struct cchat_crowd *crowd, size_t index) {
    struct connection *connection = &crowd->connections[index];
    char text[128];
    int length = snprintf(
        text, sizeof text, "{\"type\":\"join\",\"room\":\"%s-%u\",\"name\":\"member %u\"}",
        room_names[connection->kind], connection->room, connection->member);
    unsigned char frame[256];
    connection->stage = stage_joining;
    give(
        crowd, index, frame,
        cchat_put_frame(frame, cchat_text, text, (size_t)length, (uint32_t)draw(crowd, UINT32_MAX)));
}

// How much of it is dealt with.
static size_t deal_with(struct cchat_crowd *crowd, size_t index, const unsigned char *bytes, size_t count) {
    struct connection *connection = &crowd->connections[index];
    size_t done = 0;
    if (connection->stage == stage_upgrading) {
        const unsigned char *after = memmem(bytes, count, "\r\n\r\n", 4);
        if (!after) return 0;
        done = (size_t)(after - bytes) + 4;
        if (memcmp(bytes, "HTTP/1.1 101 ", 13) != 0
            || !memmem(bytes, done, acceptance, sizeof acceptance - 1)) {
            complain_of(crowd, index, "was answered ", bytes, done);
            end(crowd, index, "was not upgraded");
            return count;
        }
        join_room(crowd, index);
    }
    struct cchat_frame frame;
    while (connection->stage != stage_ended) {
        int result = cchat_take_frame(bytes + done, count - done, &frame);
        if (result == 0) return done;
        if (result < 0 || !deal_with_frame(crowd, index, &frame)) {
            end(crowd, index, result < 0 ? "a frame that is none" : "the server closes it");
            break;
        }
        done += frame.whole;
    }
    return count;
}

int take(struct cchat_crowd *crowd, size_t index, int flags) {
    struct connection *connection = &crowd->connections[index];
    if (connection->stage == stage_ended) return -1;
    size_t kept = connection->rest_count;
    if (kept > 0) memcpy(crowd->buffer, connection->rest, kept);
    ssize_t length = recv(connection->fd, crowd->buffer + kept, buffer_room - kept, flags);
    crowd->received_at = now();
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (length <= 0) {
        end(crowd, index, length < 0 ? strerror(errno) : "the server has ended the connection");
        return -1;
    }
    size_t count = kept + (size_t)length;
    size_t done = deal_with(crowd, index, crowd->buffer, count);
    size_t left = count - done;
    if (left >= buffer_room) {
        end(crowd, index, "a frame that is too long");
        return -1;
    }
    if (left > connection->rest_room) {
        connection->rest = realloc(connection->rest, left);
        if (!connection->rest) abort();
        connection->rest_room = (uint32_t)left;
    }
    if (left > 0) memcpy(connection->rest, crowd->buffer + done, left);
    connection->rest_count = (uint32_t)left;
    return connection->stage == stage_ended ? -1 : 1;
}

int turn(struct cchat_crowd *crowd, int64_t nanoseconds) {
    struct epoll_event events[most_events];
    if (nanoseconds < 0) nanoseconds = 0;
    struct timespec limit = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
    int ready = epoll_pwait2(crowd->set, events, most_events, &limit, NULL);
    if (ready < 0) return errno == EINTR ? 0 : -1;
    for (int event = 0; event < ready; event++) {
        size_t index = events[event].data.u64;
        if (index < crowd->count) take(crowd, index, MSG_DONTWAIT);
    }
    return ready;
}

// ── Joining and doing nothing ────────────────────────────────────────────────────────────────────────────────

static int begin(struct cchat_crowd *crowd, struct connection connection) {
    if (crowd->count == crowd->room) {
        crowd->room = crowd->room * 2 + 64;
        crowd->connections = realloc(crowd->connections, crowd->room * sizeof *crowd->connections);
        if (!crowd->connections) abort();
    }
    connection.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection.fd < 0) return errno;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(connection.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int yes = 1;
    struct timeval limit = {
        .tv_sec = crowd->patience / 1000000000, .tv_usec = crowd->patience % 1000000000 / 1000,
    };
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = crowd->count};
    if (setsockopt(connection.fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0
        || setsockopt(connection.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0
        || connect(connection.fd, (struct sockaddr *)&address, sizeof address) != 0
        || epoll_ctl(crowd->set, EPOLL_CTL_ADD, connection.fd, &event) != 0) {
        int code = errno;
        close(connection.fd);
        return code;
    }
    crowd->connections[crowd->count++] = connection;
    return give(crowd, crowd->count - 1, upgrade, sizeof upgrade - 1);
}

int cchat_join(
    struct cchat_crowd *crowd, uint16_t port, enum cchat_room kind, size_t first, size_t count, size_t room_size) {
    size_t begun = 0, seen = 0, joined_before = crowd->joined;
    uint64_t ended_before = crowd->ended;
    for (int64_t last = now(); seen < count;) {
        size_t joined = crowd->joined - joined_before;
        if (joined != seen) last = now();
        seen = joined;
        if (crowd->ended != ended_before) return EPROTO;
        if (now() - last > crowd->patience) return ETIMEDOUT;
        int may_begin = begun < count && begun - joined < most_joining;
        if (may_begin) {
            size_t member = first + begun++;
            struct connection connection = {
                .port = port, .kind = (uint8_t)kind, .member = (uint32_t)member,
                .room = (uint32_t)(member / room_size),
            };
            int code = begin(crowd, connection);
            if (code != 0) return code;
        }
        if (turn(crowd, may_begin ? 0 : 100000000) < 0) return errno;
    }
    return 0;
}

int cchat_idle(struct cchat_crowd *crowd, int until) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = UINT64_MAX}, events[most_events];
    if (epoll_ctl(crowd->set, EPOLL_CTL_ADD, until, &event) != 0) return errno;
    int code = 0;
    for (int is_over = 0; !is_over && code == 0;) {
        int ready = epoll_wait(crowd->set, events, most_events, -1);
        if (ready < 0 && errno != EINTR) code = errno;
        for (int number = 0; number < ready; number++) {
            size_t index = events[number].data.u64;
            if (index < crowd->count) take(crowd, index, MSG_DONTWAIT);
            else is_over = 1;
        }
    }
    epoll_ctl(crowd->set, EPOLL_CTL_DEL, until, NULL);
    return code;
}
