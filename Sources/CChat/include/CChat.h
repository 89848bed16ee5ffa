// The clients of a chat server, as bare as they can be: epoll loops with a few lines of WebSocket framing (RFC 6455) of
// their own, and what judges whether everybody heard everything. Nothing of what they talk to is in here.
#pragma once

#include <stddef.h>
#include <stdint.h>

// ── Frames and objects ───────────────────────────────────────────────────────────────────────────────────────

enum cchat_opcode { cchat_text = 1, cchat_close = 8, cchat_ping = 9, cchat_pong = 10 };

// A whole frame of a server.
struct cchat_frame {
    int opcode;
    const unsigned char *payload;
    size_t length;
    // With its header.
    size_t whole;
};

// So much comes before the payload of a client's frame, at most.
enum { cchat_header_room = 8 };

// Writes a frame of a client, masked. Returns its length; the payload has at most 65,535 bytes.
size_t cchat_put_frame(unsigned char *place, int opcode, const void *payload, size_t length, uint32_t mask);

// 1: it is all there; 0: not yet; -1: a server may not send that.
int cchat_take_frame(const unsigned char *bytes, size_t count, struct cchat_frame *frame);

// The value of a member of an object, what is within its quotes if it is a string (escapes stay as they are). Null: there
// is no such member.
const char *cchat_member(const char *object, size_t count, const char *name, size_t *length);

// The value of a member that is a whole number; -1: there is none.
int64_t cchat_number(const char *object, size_t count, const char *name);

// ── The judge ────────────────────────────────────────────────────────────────────────────────────────────────

// Rooms with so many members each, of whom everybody is to hear what anybody says, himself included, once and in order.
// Members are counted through: those of the first room, then those of the second.
struct cchat_judge;

struct cchat_verdict {
    uint64_t said;
    // Every message once for each receiver.
    uint64_t heard;
    uint64_t lost;
    // Came after what was said later by the same sender, or has a number below one that was there before.
    uint64_t reordered;
    uint64_t duplicate;
    // Was never said, or not in this room, or does not have the number that it had for others, or numbers were left out.
    uint64_t irregular;
};

struct cchat_judge *cchat_judge_make(size_t rooms, size_t members);
void cchat_judge_free(struct cchat_judge *judge);

// The next message of a sender: returns which it is, from 1 on.
uint64_t cchat_judge_say(struct cchat_judge *judge, size_t sender);

// A receiver has heard this message of a sender, which the server says is this one of its room.
void cchat_judge_hear(
    struct cchat_judge *judge, size_t receiver, size_t sender, uint64_t sequence, uint64_t number);

struct cchat_verdict cchat_judge_tell(const struct cchat_judge *judge);

// ── Crowds ───────────────────────────────────────────────────────────────────────────────────────────────────

enum cchat_room { cchat_idle_room, cchat_pair_room, cchat_talk_room, cchat_stir_room };

// Connections of one process, in the order in which they were made.
struct cchat_crowd;

struct cchat_crowd *cchat_crowd_make(uint64_t seed);
void cchat_crowd_free(struct cchat_crowd *crowd);

// What somebody did that nobody expected, the first time; empty: nothing.
const char *cchat_complaint(const struct cchat_crowd *crowd);

// Connections that the server has ended.
uint64_t cchat_ended(const struct cchat_crowd *crowd);

// How long is waited for what does not come; ten seconds by default.
void cchat_be_patient(struct cchat_crowd *crowd, int64_t milliseconds);

// Everything below returns 0, or errno: ETIMEDOUT when something does not come, EPROTO when something else comes.

// Makes `count` connections to this port of 127.0.0.1 as fast as they are served, and returns when each is in its room:
// members from `first` on of rooms of this size.
int cchat_join(
    struct cchat_crowd *crowd, uint16_t port, enum cchat_room kind, size_t first, size_t count, size_t room_size);

// Answers pings until this descriptor is readable.
int cchat_idle(struct cchat_crowd *crowd, int until);

struct cchat_sample {
    // When it was sent, and how long it took: from right before send(2) of the one to right after recv(2) of the other.
    int64_t sent_at;
    // -1: it was lost.
    int64_t latency;
};

// The first says something in a room that it shares with the second alone.
int cchat_call(struct cchat_crowd *crowd, size_t sender, size_t receiver, struct cchat_sample *sample);

struct cchat_talk {
    // Until the time was up: messages that came back to their senders, and what everybody heard.
    uint64_t messages, deliveries;
    int64_t nanoseconds;
    // Until the end.
    uint64_t lost;
};

// Everybody from `first` on says the next thing as soon as it hears the last, for this long, in rooms of this size.
int cchat_talk(
    struct cchat_crowd *crowd, size_t first, size_t count, size_t room_size, int64_t nanoseconds,
    struct cchat_talk *result);

// What a process tells of a stir while it goes on, in memory that others have mapped.
struct cchat_progress {
    uint64_t said, heard;
};

// Everybody from `first` on is in rooms of `room_size`. So many messages are said in bursts, by some of a room, after
// pauses about as long as `idle` nanoseconds, after which the server hibernates a connection; now and then a frame
// arrives in two parts.
int cchat_stir(
    struct cchat_crowd *crowd, size_t first, size_t count, size_t room_size, uint64_t messages, int64_t idle,
    struct cchat_progress *progress, struct cchat_verdict *verdict);
