// Minimal clients of a chat server: epoll loops with a few lines of WebSocket framing (RFC 6455) of their
// own, and a check that every member receives every message. Nothing in here depends on the server under
// test.
#pragma once

#include <stddef.h>
#include <stdint.h>

// ── Frames and objects ───────────────────────────────────────────────────────────────────────────────────────

enum cchat_opcode { cchat_text = 1, cchat_close = 8, cchat_ping = 9, cchat_pong = 10 };

// A complete frame of a server.
struct cchat_frame {
    int opcode;
    const unsigned char *payload;
    size_t length;
    // With its header.
    size_t whole;
};

// The longest header of a client's frame.
enum { cchat_max_header = 8 };

// Writes a frame of a client, masked. Returns its length; the payload has at most 65,535 bytes.
size_t cchat_put_frame(unsigned char *place, int opcode, const void *payload, size_t length, uint32_t mask);

// 1: the frame is complete; 0: not yet; -1: a server may not send that.
int cchat_take_frame(const unsigned char *bytes, size_t count, struct cchat_frame *frame);

// The value of a member of an object; of a string, the text within its quotes (escapes stay as they are).
// Null: there is no such member.
const char *cchat_member(const char *object, size_t count, const char *name, size_t *length);

// The value of a member that is a whole number; -1: there is none.
int64_t cchat_number(const char *object, size_t count, const char *name);

// ── Checking deliveries ──────────────────────────────────────────────────────────────────────────────────────

// Rooms with this many members each. Every member must receive each message of its room, its own included,
// once and in order. Members are numbered through: those of the first room, then those of the second.
struct cchat_delivery_check;

struct cchat_deliveries {
    uint64_t said;
    // Each message once for each receiver.
    uint64_t heard;
    uint64_t lost;
    // Arrived after a later message of the same sender, or has a lower number than one that arrived before.
    uint64_t reordered;
    uint64_t duplicate;
    // Was never sent, or not in this room, or has another number than for other receivers, or numbers were
    // left out.
    uint64_t irregular;
};

struct cchat_delivery_check *cchat_delivery_check_make(size_t rooms, size_t members);
void cchat_delivery_check_free(struct cchat_delivery_check *check);

// Records that a sender sends its next message, and returns its sequence, from 1 on.
uint64_t cchat_note_said(struct cchat_delivery_check *check, size_t sender);

// Records that a receiver has received this message of a sender, to which the server gave this number.
void cchat_note_heard(
    struct cchat_delivery_check *check, size_t receiver, size_t sender, uint64_t sequence, uint64_t number);

struct cchat_deliveries cchat_delivery_check_result(const struct cchat_delivery_check *check);

// ── Clients ──────────────────────────────────────────────────────────────────────────────────────────────────

enum cchat_room { cchat_idle_room, cchat_pair_room, cchat_throughput_room, cchat_soak_room };

// Connections of one process, in the order in which they were made.
struct cchat_clients;

struct cchat_clients *cchat_clients_make(uint64_t seed);
void cchat_clients_free(struct cchat_clients *clients);

// The first error of any connection; empty: none.
const char *cchat_first_error(const struct cchat_clients *clients);

// Connections that the server has ended.
uint64_t cchat_ended(const struct cchat_clients *clients);

// How long to wait for a message that does not come; ten seconds by default.
void cchat_set_patience(struct cchat_clients *clients, int64_t milliseconds);

// The functions below return 0, or errno: ETIMEDOUT when something does not come, EPROTO when something else
// comes.

// Makes `count` connections to this port of 127.0.0.1 as fast as they are served, and returns when each has
// joined its room: members from `first` on, in rooms of this size.
int cchat_join(
    struct cchat_clients *clients, uint16_t port, enum cchat_room kind, size_t first, size_t count, size_t room_size);

// Answers pings until this descriptor is readable.
int cchat_idle(struct cchat_clients *clients, int until);

struct cchat_sample {
    // When the message was sent, and how long it took: from before send(2) of the sender to after recv(2) of
    // the receiver.
    int64_t sent_at;
    // -1: it was lost.
    int64_t latency;
};

// Sends a message in a room that sender and receiver share with no other member.
int cchat_call(struct cchat_clients *clients, size_t sender, size_t receiver, struct cchat_sample *sample);

struct cchat_throughput {
    // Until the deadline: messages that came back to their senders, and messages that all members received.
    uint64_t messages, deliveries;
    int64_t nanoseconds;
    // Until the end: messages that never arrived.
    uint64_t lost;
};

// Each member from `first` on sends its next message as soon as it receives its last, for this long, in rooms
// of this size.
int cchat_measure_throughput(
    struct cchat_clients *clients, size_t first, size_t count, size_t room_size, int64_t nanoseconds,
    struct cchat_throughput *result);

// The progress of `cchat_soak`, in memory that other processes map.
struct cchat_progress {
    uint64_t said, heard;
};

// Members from `first` on are in rooms of `room_size`. Some members of a room send messages in bursts, after
// pauses about as long as `idle` nanoseconds, after which the server hibernates a connection; now and then a
// frame arrives in two parts.
int cchat_soak(
    struct cchat_clients *clients, size_t first, size_t count, size_t room_size, uint64_t messages, int64_t idle,
    struct cchat_progress *progress, struct cchat_deliveries *deliveries);
