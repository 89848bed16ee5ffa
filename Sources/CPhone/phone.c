#define _GNU_SOURCE
#include "CPhone.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int cphone_answer_call(int socket) {
    struct cphone_call call;
    ssize_t length = recv(socket, &call, sizeof call, MSG_WAITALL);
    int64_t read_at = now();
    if (length == 0) return -1;
    if (length < 0) return errno;
    struct cphone_answer answer = {call.number, read_at, getpid()};
    return send(socket, &answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer ? 0 : errno;
}

// ── The control protocol ─────────────────────────────────────────────────────────────────────────────────────

enum {
    wire_varint = 0,
    wire_bytes = 2,
    // Bodies of ClientMessage.
    hello = 2,
    hand_over = 3,
    enter_background = 5,
    background_entered = 6,
    ready_to_suspend = 14,
    wake_done = 15,
    hibernate = 17,
    // Bodies of SupervisorMessage.
    error_message = 3,
    did_enter_background = 16,
    prepare_to_suspend = 17,
    wake = 19,
};

struct packet {
    unsigned char bytes[4096];
    size_t length;
};

static void put_varint(struct packet *packet, uint64_t value) {
    do {
        packet->bytes[packet->length++] = (unsigned char)((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
    } while (value >>= 7);
}

static void put_number(struct packet *packet, unsigned field, uint64_t value) {
    put_varint(packet, field << 3 | wire_varint);
    put_varint(packet, value);
}

static void put_bytes(struct packet *packet, unsigned field, const void *bytes, size_t length) {
    put_varint(packet, field << 3 | wire_bytes);
    put_varint(packet, length);
    memcpy(packet->bytes + packet->length, bytes, length);
    packet->length += length;
}

// Reads a number; none if no bytes are left.
static uint64_t take_varint(const unsigned char **at, const unsigned char *end) {
    uint64_t value = 0;
    for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
        unsigned char byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) break;
    }
    return value;
}

static int send_message(int connection, unsigned body, const struct packet *content, uint64_t request, int descriptor) {
    struct packet message = {.length = 0};
    if (request) put_number(&message, 1, request);
    put_bytes(&message, body, content->bytes, content->length);
    struct iovec vector = {message.bytes, message.length};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr header = {.msg_iov = &vector, .msg_iovlen = 1};
    if (descriptor >= 0) {
        header.msg_control = &control;
        header.msg_controllen = sizeof control;
        control.header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &descriptor, sizeof descriptor);
    }
    return sendmsg(connection, &header, MSG_NOSIGNAL) < 0 ? errno : 0;
}

static int send_number(int connection, unsigned body, unsigned field, uint64_t value) {
    struct packet content = {.length = 0};
    put_number(&content, field, value);
    return send_message(connection, body, &content, 0, -1);
}

// Waits for a message, and returns its body and the first number in it. 0, or errno.
static int receive_message(int connection, unsigned *body, uint64_t *number) {
    static unsigned char bytes[131072];
    // A connection inherited at launch does not block.
    ssize_t length;
    while ((length = recv(connection, bytes, sizeof bytes, 0)) < 0) {
        if (errno != EAGAIN && errno != EINTR) return errno;
        fd_set set;
        FD_ZERO(&set);
        FD_SET(connection, &set);
        select(connection + 1, &set, NULL, NULL, NULL);
    }
    if (length == 0) return ECONNRESET;
    const unsigned char *at = bytes, *end = bytes + length;
    *body = 0;
    *number = 0;
    while (at < end) {
        uint64_t tag = take_varint(&at, end);
        if ((tag & 7) == wire_varint) {
            take_varint(&at, end);
            continue;
        }
        if ((tag & 7) != wire_bytes) return EPROTO;
        size_t size = take_varint(&at, end);
        if (size > (size_t)(end - at)) return EPROTO;
        *body = (unsigned)(tag >> 3);
        const unsigned char *inner = at, *inner_end = at + size;
        if (inner < inner_end && take_varint(&inner, inner_end) == (1 << 3 | wire_varint)) {
            *number = take_varint(&inner, inner_end);
        }
        at += size;
    }
    return 0;
}

// Waits for the reply to a request. Answers wakes in between.
static int await_reply(int connection) {
    unsigned body;
    uint64_t number;
    for (;;) {
        int error = receive_message(connection, &body, &number);
        if (error) return error;
        if (body == error_message) return -(int)number;
        if (body != wake) return 0;
        error = send_number(connection, wake_done, 1, number);
        if (error) return error;
    }
}

// ── A phone ──────────────────────────────────────────────────────────────────────────────────────────────────

static int connect_to_supervisor(void) {
    const char *inherited = getenv("NIGHTBELL_CONNECTION_FD");
    if (inherited) return atoi(inherited);
    int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("NIGHTBELL_SOCKET");
    if (!path || strlen(path) >= sizeof address.sun_path) return -1;
    strcpy(address.sun_path, path);
    return connect(connection, (struct sockaddr *)&address, sizeof address) == 0 ? connection : -1;
}

static int send_hello(int connection, const char *prepared, unsigned length) {
    if (prepared) return send(connection, prepared, length, MSG_NOSIGNAL) < 0 ? errno : 0;
    const char *identifier = getenv("NIGHTBELL_IDENTIFIER");
    if (!identifier) return EINVAL;
    struct packet content = {.length = 0};
    put_number(&content, 1, 1);
    put_bytes(&content, 2, identifier, strlen(identifier));
    put_number(&content, 3, 1);
    return send_message(connection, hello, &content, 1, -1);
}

// Connects to its registrar and hands the connection over to survive.
static int register_phone(int connection, uint16_t port, uint64_t index) {
    int registration = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(registration, (struct sockaddr *)&address, sizeof address) != 0) return errno;
    struct cphone_registration words = {index};
    if (send(registration, &words, sizeof words, MSG_NOSIGNAL) != sizeof words) return errno;
    struct packet offer = {.length = 0}, content = {.length = 0};
    put_number(&offer, 1, 1);
    put_bytes(&offer, 2, "sip", 3);
    put_number(&offer, 3, 1);
    put_bytes(&content, 1, offer.bytes, offer.length);
    int error = send_message(connection, hand_over, &content, 2, registration);
    return error ? error : await_reply(connection);
}

int cphone_run(const char *prepared, unsigned length, uint16_t port, uint64_t index) {
    int isLaunched = getenv("LISTEN_FDS") != NULL;
    int connection = connect_to_supervisor();
    if (connection < 0) return ENOTCONN;
    int error = send_hello(connection, prepared, length);
    if (!error) error = await_reply(connection);
    if (!error && !isLaunched) error = register_phone(connection, port, index);
    struct packet nothing = {.length = 0};
    if (!error) error = send_message(connection, hibernate, &nothing, 0, -1);
    if (!error && !isLaunched) error = send_message(connection, enter_background, &nothing, 0, -1);
    while (!error) {
        unsigned body;
        uint64_t number;
        error = receive_message(connection, &body, &number);
        if (error) break;
        if (body == wake) error = send_number(connection, wake_done, 1, number);
        if (body == did_enter_background) error = send_message(connection, background_entered, &nothing, 0, -1);
        if (body == prepare_to_suspend) error = send_number(connection, ready_to_suspend, 1, number);
        if (body == error_message) error = -(int)number;
    }
    return error;
}
