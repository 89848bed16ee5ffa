// Declarations that the files of this target share.
#pragma once

#include "CChat.h"

#include <netinet/in.h>

enum stage { stage_upgrading, stage_joining, stage_joined, stage_ended };

struct connection {
    int fd;
    uint16_t port;
    uint8_t stage;
    uint8_t kind;
    uint32_t member, room;
    // The number of its last message, and received bytes of an incomplete frame.
    uint64_t sequence;
    unsigned char *rest;
    uint32_t rest_count, rest_capacity;
};

// A received message. The sequence of a message that no member sent is 0.
struct message {
    uint64_t sender, sequence, number;
};

struct cchat_clients {
    int set;
    size_t count, capacity;
    struct connection *connections;
    unsigned char *buffer;
    uint64_t random;
    size_t joined;
    uint64_t ended;
    char first_error[256];
    // In nanoseconds.
    int64_t patience;
    // Right after the last recv(2).
    int64_t received_at;
    // Called for each message that a connection receives.
    void (*on_message)(void *listener, size_t index, const struct message *message);
    void *listener;
};

int64_t now(void);

// A random number from 0 up to, not including, `below`.
uint64_t random_below(struct cchat_clients *clients, uint64_t below);

// Records an error, if it is the first.
void note_error(struct cchat_clients *clients, size_t index, const char *what, const void *text, size_t length);

// Reads once, and handles the bytes. 1: something came; 0: nothing; -1: the end.
int receive(struct cchat_clients *clients, size_t index, int flags);

// Waits up to this many nanoseconds for events, and handles them. Returns their number; -1 and errno.
int run_once(struct cchat_clients *clients, int64_t nanoseconds);

// Writes the frame of a member's message; `place` has room for 256 bytes. Returns its length.
size_t put_message_frame(struct cchat_clients *clients, size_t index, uint64_t sequence, unsigned char *place);

// 0, or errno.
int send_bytes(struct cchat_clients *clients, size_t index, const void *bytes, size_t count);

int send_message(struct cchat_clients *clients, size_t index, uint64_t sequence);
