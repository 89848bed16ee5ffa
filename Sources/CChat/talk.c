#include "crowd.h"

#include <errno.h>
#include <stdlib.h>

// ── One call ─────────────────────────────────────────────────────────────────────────────────────────────────

struct call {
    size_t sender, receiver;
    uint64_t member, sequence;
    int is_heard, is_back;
};

static void hear_call(void *listener, size_t index, const struct message *message) {
    struct call *call = listener;
    if (message->sender != call->member || message->sequence != call->sequence) return;
    if (index == call->receiver) call->is_heard = 1;
    if (index == call->sender) call->is_back = 1;
}

int cchat_call(struct cchat_crowd *crowd, size_t sender, size_t receiver, struct cchat_sample *sample) {
    struct connection *connection = &crowd->connections[sender];
    // Whatever else was to be done is not in the way.
    for (int ready; (ready = turn(crowd, 0)) != 0;) {
        if (ready < 0) return errno;
    }
    struct call call = {
        .sender = sender, .receiver = receiver, .member = connection->member,
        .sequence = ++connection->sequence,
    };
    crowd->hear = hear_call;
    crowd->listener = &call;
    unsigned char frame[256];
    size_t length = put_saying(crowd, sender, call.sequence, frame);
    sample->sent_at = now();
    int code = give(crowd, sender, frame, length);
    // Who blocks in recv(2) is on its way as soon as it is there. After a ping it is not there yet.
    while (code == 0 && !call.is_heard && take(crowd, receiver, 0) > 0) {}
    sample->latency = call.is_heard ? crowd->received_at - sample->sent_at : -1;
    while (code == 0 && !call.is_back && take(crowd, sender, 0) > 0) {}
    crowd->hear = 0;
    if (code == 0 && (connection->stage == stage_ended || crowd->connections[receiver].stage == stage_ended)) {
        code = EPROTO;
    }
    return code;
}

// ── As much as there can be ──────────────────────────────────────────────────────────────────────────────────

struct talk {
    struct cchat_crowd *crowd;
    size_t first, count, room_size;
    int64_t deadline;
    uint64_t messages, deliveries;
    // Until the end, and what is to come until then.
    uint64_t heard, expected;
    // For each receiver what it heard last of each of its room.
    uint64_t *last_heard;
    int code;
};

static void say_next(struct talk *talk, size_t index) {
    struct connection *connection = &talk->crowd->connections[index];
    size_t room_start = connection->room * talk->room_size;
    size_t left = talk->count - room_start;
    talk->expected += left < talk->room_size ? left : talk->room_size;
    int code = say(talk->crowd, index, ++connection->sequence);
    if (code != 0) talk->code = code;
}

static uint64_t *last_heard_of(const struct talk *talk, size_t index, uint64_t sender) {
    return &talk->last_heard[(index - talk->first) * talk->room_size + sender % talk->room_size];
}

static void hear_talk(void *listener, size_t index, const struct message *message) {
    struct talk *talk = listener;
    const struct connection *connection = &talk->crowd->connections[index];
    if (index < talk->first || index >= talk->first + talk->count) return;
    int is_back = message->sender == connection->member && message->sequence == connection->sequence;
    if (message->sender / talk->room_size != connection->room) return;
    uint64_t *last = last_heard_of(talk, index, message->sender);
    // What comes twice, or too late, makes up for nothing that does not come.
    if (message->sequence <= *last) return;
    *last = message->sequence;
    talk->heard++;
    if (talk->crowd->received_at >= talk->deadline) return;
    talk->deliveries++;
    if (!is_back) return;
    talk->messages++;
    say_next(talk, index);
}

int cchat_talk(
    struct cchat_crowd *crowd, size_t first, size_t count, size_t room_size, int64_t nanoseconds,
    struct cchat_talk *result) {
    int64_t start = now();
    struct talk talk = {
        .crowd = crowd, .first = first, .count = count, .room_size = room_size, .deadline = start + nanoseconds,
    };
    talk.last_heard = calloc(count * room_size, sizeof *talk.last_heard);
    if (!talk.last_heard) abort();
    // What was said before, and has not come until now, is not asked for.
    for (size_t index = first; index < first + count; index++) {
        for (size_t sender = first; sender < first + count; sender++) {
            const struct connection *saying = &crowd->connections[sender];
            if (saying->room != crowd->connections[index].room) continue;
            *last_heard_of(&talk, index, saying->member) = saying->sequence;
        }
    }
    crowd->hear = hear_talk;
    crowd->listener = &talk;
    for (size_t index = first; index < first + count; index++) say_next(&talk, index);
    uint64_t ended = crowd->ended;
    for (int64_t last = start; talk.code == 0 && (now() < talk.deadline || talk.heard < talk.expected);) {
        if (crowd->ended != ended) talk.code = EPROTO;
        if (now() - last > crowd->patience) break;
        int ready = turn(crowd, 10000000);
        if (ready < 0) talk.code = errno;
        if (ready > 0) last = now();
    }
    crowd->hear = 0;
    free(talk.last_heard);
    result->messages = talk.messages;
    result->deliveries = talk.deliveries;
    result->nanoseconds = nanoseconds;
    result->lost = talk.expected > talk.heard ? talk.expected - talk.heard : 0;
    return talk.code;
}
