#include "clients.h"

#include <errno.h>
#include <stdlib.h>

// ── Latency of one message ───────────────────────────────────────────────────────────────────────────────────

struct call {
    size_t sender, receiver;
    uint64_t member, sequence;
    int is_heard, is_back;
};

static void on_call_message(void *listener, size_t index, const struct message *message) {
    struct call *call = listener;
    if (message->sender != call->member || message->sequence != call->sequence) return;
    if (index == call->receiver) call->is_heard = 1;
    if (index == call->sender) call->is_back = 1;
}

int cchat_call(struct cchat_clients *clients, size_t sender, size_t receiver, struct cchat_sample *sample) {
    struct connection *connection = &clients->connections[sender];
    // Handles pending events first, so that they do not delay the call.
    for (int ready; (ready = run_once(clients, 0)) != 0;) {
        if (ready < 0) return errno;
    }
    struct call call = {
        .sender = sender, .receiver = receiver, .member = connection->member,
        .sequence = ++connection->sequence,
    };
    clients->on_message = on_call_message;
    clients->listener = &call;
    unsigned char frame[256];
    size_t length = put_message_frame(clients, sender, call.sequence, frame);
    sample->sent_at = now();
    int code = send_bytes(clients, sender, frame, length);
    // A receiver that blocks in recv(2) runs as soon as the message arrives. After a ping it has to block
    // again.
    while (code == 0 && !call.is_heard && receive(clients, receiver, 0) > 0) {}
    sample->latency = call.is_heard ? clients->received_at - sample->sent_at : -1;
    while (code == 0 && !call.is_back && receive(clients, sender, 0) > 0) {}
    clients->on_message = 0;
    if (code == 0 && (connection->stage == stage_ended || clients->connections[receiver].stage == stage_ended)) {
        code = EPROTO;
    }
    return code;
}

// ── Throughput ───────────────────────────────────────────────────────────────────────────────────────────────

struct throughput {
    struct cchat_clients *clients;
    size_t first, count, room_size;
    int64_t deadline;
    uint64_t messages, deliveries;
    // Messages received until the end, and those expected until then.
    uint64_t heard, expected;
    // For each receiver the last message that it received from each member of its room.
    uint64_t *last_heard;
    int code;
};

static void send_next(struct throughput *throughput, size_t index) {
    struct connection *connection = &throughput->clients->connections[index];
    size_t room_start = connection->room * throughput->room_size;
    size_t left = throughput->count - room_start;
    throughput->expected += left < throughput->room_size ? left : throughput->room_size;
    int code = send_message(throughput->clients, index, ++connection->sequence);
    if (code != 0) throughput->code = code;
}

static uint64_t *last_heard_of(const struct throughput *throughput, size_t index, uint64_t sender) {
    return &throughput->last_heard[(index - throughput->first) * throughput->room_size + sender % throughput->room_size];
}

static void on_throughput_message(void *listener, size_t index, const struct message *message) {
    struct throughput *throughput = listener;
    const struct connection *connection = &throughput->clients->connections[index];
    if (index < throughput->first || index >= throughput->first + throughput->count) return;
    int is_back = message->sender == connection->member && message->sequence == connection->sequence;
    if (message->sender / throughput->room_size != connection->room) return;
    uint64_t *last = last_heard_of(throughput, index, message->sender);
    // A duplicate or late message does not make up for a missing one.
    if (message->sequence <= *last) return;
    *last = message->sequence;
    throughput->heard++;
    if (throughput->clients->received_at >= throughput->deadline) return;
    throughput->deliveries++;
    if (!is_back) return;
    throughput->messages++;
    send_next(throughput, index);
}

int cchat_measure_throughput(
    struct cchat_clients *clients, size_t first, size_t count, size_t room_size, int64_t nanoseconds,
    struct cchat_throughput *result) {
    int64_t start = now();
    struct throughput throughput = {
        .clients = clients, .first = first, .count = count, .room_size = room_size, .deadline = start + nanoseconds,
    };
    throughput.last_heard = calloc(count * room_size, sizeof *throughput.last_heard);
    if (!throughput.last_heard) abort();
    // Earlier messages that have not arrived yet are not expected.
    for (size_t index = first; index < first + count; index++) {
        for (size_t sender = first; sender < first + count; sender++) {
            const struct connection *saying = &clients->connections[sender];
            if (saying->room != clients->connections[index].room) continue;
            *last_heard_of(&throughput, index, saying->member) = saying->sequence;
        }
    }
    clients->on_message = on_throughput_message;
    clients->listener = &throughput;
    for (size_t index = first; index < first + count; index++) send_next(&throughput, index);
    uint64_t ended = clients->ended;
    for (int64_t last = start; throughput.code == 0 && (now() < throughput.deadline || throughput.heard < throughput.expected);) {
        if (clients->ended != ended) throughput.code = EPROTO;
        if (now() - last > clients->patience) break;
        int ready = run_once(clients, 10000000);
        if (ready < 0) throughput.code = errno;
        if (ready > 0) last = now();
    }
    clients->on_message = 0;
    free(throughput.last_heard);
    result->messages = throughput.messages;
    result->deliveries = throughput.deliveries;
    result->nanoseconds = nanoseconds;
    result->lost = throughput.expected > throughput.heard ? throughput.expected - throughput.heard : 0;
    return throughput.code;
}
