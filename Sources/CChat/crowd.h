// What the files of this target share.
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
    // The number of what it said last, and what of its frames has not been whole yet.
    uint64_t sequence;
    unsigned char *rest;
    uint32_t rest_count, rest_room;
};

// What somebody said and somebody else heard. The sequence of what nobody has said like that is 0, which is nobody's.
struct message {
    uint64_t sender, sequence, number;
};

struct cchat_crowd {
    int set;
    size_t count, room;
    struct connection *connections;
    unsigned char *buffer;
    uint64_t random;
    size_t joined;
    uint64_t ended;
    char complaint[256];
    // In nanoseconds.
    int64_t patience;
    // Right after the last recv(2).
    int64_t received_at;
    // Is told of every message that one of them hears.
    void (*hear)(void *listener, size_t index, const struct message *message);
    void *listener;
};

int64_t now(void);

// From 0 on, below this.
uint64_t draw(struct cchat_crowd *crowd, uint64_t below);

// Notes what is wrong, if it is the first.
void complain_of(struct cchat_crowd *crowd, size_t index, const char *what, const void *text, size_t length);

// Reads once, and deals with what has come. 1: something; 0: nothing; -1: the end.
int take(struct cchat_crowd *crowd, size_t index, int flags);

// Waits so many nanoseconds for something to come, and deals with it. How much; -1: errno tells.
int turn(struct cchat_crowd *crowd, int64_t nanoseconds);

// The frame of what somebody says next; `place` has room for 256 bytes. Returns its length.
size_t put_saying(struct cchat_crowd *crowd, size_t index, uint64_t sequence, unsigned char *place);

// 0, or errno.
int give(struct cchat_crowd *crowd, size_t index, const void *bytes, size_t count);

int say(struct cchat_crowd *crowd, size_t index, uint64_t sequence);
