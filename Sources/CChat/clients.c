#define _GNU_SOURCE
#include "clients.h"

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

enum { max_events = 256, buffer_size = 1 << 18, max_joining = 64 };

static const char *const room_names[] = {"idle", "pair", "throughput", "soak"};

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

uint64_t random_below(struct cchat_clients *clients, uint64_t below) {
    uint64_t z = clients->random += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return (z ^ z >> 31) % below;
}

struct cchat_clients *cchat_clients_make(uint64_t seed) {
    struct cchat_clients *clients = calloc(1, sizeof *clients);
    if (!clients) abort();
    clients->buffer = malloc(buffer_size);
    clients->set = epoll_create1(EPOLL_CLOEXEC);
    if (!clients->buffer || clients->set < 0) abort();
    clients->random = seed;
    clients->patience = INT64_C(10000000000);
    return clients;
}

void cchat_clients_free(struct cchat_clients *clients) {
    for (size_t index = 0; index < clients->count; index++) {
        if (clients->connections[index].fd >= 0) close(clients->connections[index].fd);
        free(clients->connections[index].rest);
    }
    close(clients->set);
    free(clients->connections);
    free(clients->buffer);
    free(clients);
}

void cchat_set_patience(struct cchat_clients *clients, int64_t milliseconds) {
    clients->patience = milliseconds * 1000000;
}

const char *cchat_first_error(const struct cchat_clients *clients) { return clients->first_error; }

uint64_t cchat_ended(const struct cchat_clients *clients) { return clients->ended; }

void note_error(struct cchat_clients *clients, size_t index, const char *what, const void *text, size_t length) {
    if (clients->first_error[0]) return;
    const struct connection *connection = &clients->connections[index];
    snprintf(
        clients->first_error, sizeof clients->first_error, "member %u of room %s-%u: %s%.*s", connection->member,
        room_names[connection->kind], connection->room, what, (int)(length < 128 ? length : 128),
        (const char *)text);
}

static void end(struct cchat_clients *clients, size_t index, const char *why) {
    struct connection *connection = &clients->connections[index];
    if (connection->stage == stage_ended) return;
    note_error(clients, index, why, "", 0);
    connection->stage = stage_ended;
    clients->ended++;
    close(connection->fd);
    connection->fd = -1;
}

int send_bytes(struct cchat_clients *clients, size_t index, const void *bytes, size_t count) {
    // No connection is so far behind that its buffer is full.
    ssize_t sent = send(clients->connections[index].fd, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == (ssize_t)count) return 0;
    end(clients, index, "cannot send to the server");
    return EPROTO;
}

// The text of a member's message: any other text is an error. Returns its length.
static int put_text(char *place, size_t size, uint64_t member, uint64_t sequence) {
    return snprintf(
        place, size, "%llu %llu is a message from one member here", (unsigned long long)member,
        (unsigned long long)sequence);
}

size_t put_message_frame(struct cchat_clients *clients, size_t index, uint64_t sequence, unsigned char *place) {
    char said[128], text[200];
    put_text(said, sizeof said, clients->connections[index].member, sequence);
    int length = snprintf(text, sizeof text, "{\"type\":\"say\",\"text\":\"%s\"}", said);
    return cchat_put_frame(place, cchat_text, text, (size_t)length, (uint32_t)random_below(clients, UINT32_MAX));
}

int send_message(struct cchat_clients *clients, size_t index, uint64_t sequence) {
    unsigned char frame[256];
    return send_bytes(clients, index, frame, put_message_frame(clients, index, sequence, frame));
}

// ── Receiving ────────────────────────────────────────────────────────────────────────────────────────────────

static int is_equal(const char *value, size_t length, const char *text) {
    return value && length == strlen(text) && memcmp(value, text, length) == 0;
}

static void handle_object(struct cchat_clients *clients, size_t index, const char *object, size_t count) {
    size_t length;
    const char *type = cchat_member(object, count, "type", &length);
    if (is_equal(type, length, "message")) {
        const char *text = cchat_member(object, count, "text", &length);
        int64_t number = cchat_number(object, count, "number");
        if (!text || number < 0) return note_error(clients, index, "understands nothing of ", object, count);
        char *next, said[128];
        size_t heard = length;
        struct message message = {.number = (uint64_t)number};
        message.sender = strtoull(text, &next, 10);
        message.sequence = strtoull(next, &next, 10);
        length = (size_t)put_text(said, sizeof said, message.sender, message.sequence);
        if (heard != length || memcmp(text, said, length) != 0) message.sequence = 0;
        if (clients->on_message) clients->on_message(clients->listener, index, &message);
    } else if (is_equal(type, length, "welcome")) {
        if (clients->connections[index].stage == stage_joining) clients->joined++;
        clients->connections[index].stage = stage_joined;
    } else if (!type || is_equal(type, length, "error")) {
        note_error(clients, index, "was told ", object, count);
    }
}

static int handle_frame(struct cchat_clients *clients, size_t index, const struct cchat_frame *frame) {
    unsigned char answer[cchat_max_header + 125];
    switch (frame->opcode) {
    case cchat_text:
        handle_object(clients, index, (const char *)frame->payload, frame->length);
        return 1;
    case cchat_ping:
        if (frame->length > 125) return 0;
        return send_bytes(
                   clients, index, answer,
                   cchat_put_frame(
                       answer, cchat_pong, frame->payload, frame->length, (uint32_t)random_below(clients, UINT32_MAX)))
            == 0;
    case cchat_pong: return 1;
    default: return 0;
    }
}

static void join_room(struct cchat_clients *clients, size_t index) {
    struct connection *connection = &clients->connections[index];
    char text[128];
    int length = snprintf(
        text, sizeof text, "{\"type\":\"join\",\"room\":\"%s-%u\",\"name\":\"member %u\"}",
        room_names[connection->kind], connection->room, connection->member);
    unsigned char frame[256];
    connection->stage = stage_joining;
    send_bytes(
        clients, index, frame,
        cchat_put_frame(frame, cchat_text, text, (size_t)length, (uint32_t)random_below(clients, UINT32_MAX)));
}

// Returns how many of the bytes were used.
static size_t handle_bytes(struct cchat_clients *clients, size_t index, const unsigned char *bytes, size_t count) {
    struct connection *connection = &clients->connections[index];
    size_t done = 0;
    if (connection->stage == stage_upgrading) {
        const unsigned char *after = memmem(bytes, count, "\r\n\r\n", 4);
        if (!after) return 0;
        done = (size_t)(after - bytes) + 4;
        if (memcmp(bytes, "HTTP/1.1 101 ", 13) != 0
            || !memmem(bytes, done, acceptance, sizeof acceptance - 1)) {
            note_error(clients, index, "was answered ", bytes, done);
            end(clients, index, "was not upgraded");
            return count;
        }
        join_room(clients, index);
    }
    struct cchat_frame frame;
    while (connection->stage != stage_ended) {
        int result = cchat_take_frame(bytes + done, count - done, &frame);
        if (result == 0) return done;
        if (result < 0 || !handle_frame(clients, index, &frame)) {
            end(clients, index, result < 0 ? "a frame that is none" : "the server closes it");
            break;
        }
        done += frame.whole;
    }
    return count;
}

int receive(struct cchat_clients *clients, size_t index, int flags) {
    struct connection *connection = &clients->connections[index];
    if (connection->stage == stage_ended) return -1;
    size_t kept = connection->rest_count;
    if (kept > 0) memcpy(clients->buffer, connection->rest, kept);
    ssize_t length = recv(connection->fd, clients->buffer + kept, buffer_size - kept, flags);
    clients->received_at = now();
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (length <= 0) {
        end(clients, index, length < 0 ? strerror(errno) : "the server has ended the connection");
        return -1;
    }
    size_t count = kept + (size_t)length;
    size_t done = handle_bytes(clients, index, clients->buffer, count);
    size_t left = count - done;
    if (left >= buffer_size) {
        end(clients, index, "a frame that is too long");
        return -1;
    }
    if (left > connection->rest_capacity) {
        connection->rest = realloc(connection->rest, left);
        if (!connection->rest) abort();
        connection->rest_capacity = (uint32_t)left;
    }
    if (left > 0) memcpy(connection->rest, clients->buffer + done, left);
    connection->rest_count = (uint32_t)left;
    return connection->stage == stage_ended ? -1 : 1;
}

int run_once(struct cchat_clients *clients, int64_t nanoseconds) {
    struct epoll_event events[max_events];
    if (nanoseconds < 0) nanoseconds = 0;
    struct timespec limit = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
    int ready = epoll_pwait2(clients->set, events, max_events, &limit, NULL);
    if (ready < 0) return errno == EINTR ? 0 : -1;
    for (int event = 0; event < ready; event++) {
        size_t index = events[event].data.u64;
        if (index < clients->count) receive(clients, index, MSG_DONTWAIT);
    }
    return ready;
}

// ── Joining and idling ───────────────────────────────────────────────────────────────────────────────────────

static int begin(struct cchat_clients *clients, struct connection connection) {
    if (clients->count == clients->capacity) {
        clients->capacity = clients->capacity * 2 + 64;
        clients->connections = realloc(clients->connections, clients->capacity * sizeof *clients->connections);
        if (!clients->connections) abort();
    }
    connection.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection.fd < 0) return errno;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(connection.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int yes = 1;
    struct timeval limit = {
        .tv_sec = clients->patience / 1000000000, .tv_usec = clients->patience % 1000000000 / 1000,
    };
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = clients->count};
    if (setsockopt(connection.fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0
        || setsockopt(connection.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0
        || connect(connection.fd, (struct sockaddr *)&address, sizeof address) != 0
        || epoll_ctl(clients->set, EPOLL_CTL_ADD, connection.fd, &event) != 0) {
        int code = errno;
        close(connection.fd);
        return code;
    }
    clients->connections[clients->count++] = connection;
    return send_bytes(clients, clients->count - 1, upgrade, sizeof upgrade - 1);
}

int cchat_join(
    struct cchat_clients *clients, uint16_t port, enum cchat_room kind, size_t first, size_t count, size_t room_size) {
    size_t begun = 0, seen = 0, joined_before = clients->joined;
    uint64_t ended_before = clients->ended;
    for (int64_t last = now(); seen < count;) {
        size_t joined = clients->joined - joined_before;
        if (joined != seen) last = now();
        seen = joined;
        if (clients->ended != ended_before) return EPROTO;
        if (now() - last > clients->patience) return ETIMEDOUT;
        int may_begin = begun < count && begun - joined < max_joining;
        if (may_begin) {
            size_t member = first + begun++;
            struct connection connection = {
                .port = port, .kind = (uint8_t)kind, .member = (uint32_t)member,
                .room = (uint32_t)(member / room_size),
            };
            int code = begin(clients, connection);
            if (code != 0) return code;
        }
        if (run_once(clients, may_begin ? 0 : 100000000) < 0) return errno;
    }
    return 0;
}

int cchat_idle(struct cchat_clients *clients, int until) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = UINT64_MAX}, events[max_events];
    if (epoll_ctl(clients->set, EPOLL_CTL_ADD, until, &event) != 0) return errno;
    int code = 0;
    for (int is_over = 0; !is_over && code == 0;) {
        int ready = epoll_wait(clients->set, events, max_events, -1);
        if (ready < 0 && errno != EINTR) code = errno;
        for (int number = 0; number < ready; number++) {
            size_t index = events[number].data.u64;
            if (index < clients->count) receive(clients, index, MSG_DONTWAIT);
            else is_over = 1;
        }
    }
    epoll_ctl(clients->set, EPOLL_CTL_DEL, until, NULL);
    return code;
}
