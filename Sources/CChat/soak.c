#include "clients.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    // Messages of a room in flight before the room has to wait.
    max_in_flight = 64,
    max_in_burst = 6,
};

struct room {
    // When the room sends next; INT64_MAX: once everything was received.
    int64_t due;
    uint64_t said, heard;
    int64_t last_heard;
    // The unsent rest of a frame, the sender's index, and when to send it.
    size_t split_by, split_count;
    int64_t split_due;
    unsigned char split[256];
};

struct soak {
    struct cchat_clients *clients;
    size_t first, count, room_size;
    int64_t idle;
    uint64_t left;
    struct room *rooms;
    struct cchat_delivery_check *check;
    struct cchat_progress *progress;
    int64_t last_heard;
    int code;
};

static size_t room_count(const struct soak *soak) { return soak->count / soak->room_size; }

// A pause about as long as hibernation takes: shorter, the same, or longer; now and then none.
static int64_t random_pause(struct soak *soak) {
    uint64_t idle = (uint64_t)soak->idle;
    switch (random_below(soak->clients, 8)) {
    case 0: return 0;
    case 1: case 2: return (int64_t)random_below(soak->clients, idle);
    case 3: case 4: case 5: return (int64_t)(idle - idle / 10 + random_below(soak->clients, idle / 5));
    default: return (int64_t)(idle + random_below(soak->clients, 2 * idle));
    }
}

static void on_soak_message(void *listener, size_t index, const struct message *message) {
    struct soak *soak = listener;
    if (index < soak->first || index >= soak->first + soak->count) return;
    size_t receiver = index - soak->first;
    struct room *room = &soak->rooms[receiver / soak->room_size];
    cchat_note_heard(soak->check, receiver, message->sender, message->sequence, message->number);
    soak->last_heard = room->last_heard = soak->clients->received_at;
    room->heard++;
    __atomic_store_n(&soak->progress->heard, soak->progress->heard + 1, __ATOMIC_RELAXED);
    if (room->due == INT64_MAX && room->heard >= room->said * soak->room_size && room->split_count == 0) {
        room->due = room->last_heard + random_pause(soak);
    }
}

// Sends a few messages of one member: in one piece, one by one, or with the last of them in two pieces.
static void burst(struct soak *soak, size_t number) {
    struct room *room = &soak->rooms[number];
    size_t member = number * soak->room_size + (size_t)random_below(soak->clients, soak->room_size);
    size_t index = soak->first + member;
    unsigned char bytes[max_in_burst * 256];
    size_t count = 0, last = 0;
    uint64_t messages = 1 + random_below(soak->clients, max_in_burst);
    if (messages > soak->left) messages = soak->left;
    if (messages == 0) return;
    int is_together = random_below(soak->clients, 4) != 0, is_split = random_below(soak->clients, 8) == 0;
    for (uint64_t message = 0; message < messages && soak->code == 0; message++) {
        last = count;
        count += put_message_frame(soak->clients, index, cchat_note_said(soak->check, member), bytes + count);
        room->said++;
        soak->left--;
        if (!is_together && message + 1 < messages) {
            soak->code = send_bytes(soak->clients, index, bytes, count);
            count = 0;
        }
    }
    __atomic_store_n(&soak->progress->said, soak->progress->said + messages, __ATOMIC_RELAXED);
    if (is_split && room->split_count == 0) {
        if (last > count) last = 0;
        size_t cut = last + 1 + (size_t)random_below(soak->clients, count - last - 1);
        room->split_by = index;
        room->split_count = count - cut;
        memcpy(room->split, bytes + cut, room->split_count);
        room->split_due = now() + (int64_t)random_below(soak->clients, 2 * (uint64_t)soak->idle);
        count = cut;
    }
    if (soak->code == 0) soak->code = send_bytes(soak->clients, index, bytes, count);
}

// Sends what is due, and returns when the next is due.
static int64_t send_due(struct soak *soak, int64_t at) {
    int64_t next = at + 50000000;
    for (size_t number = 0; number < room_count(soak) && soak->code == 0; number++) {
        struct room *room = &soak->rooms[number];
        if (room->split_count > 0) {
            if (room->split_due <= at) {
                soak->code = send_bytes(soak->clients, room->split_by, room->split, room->split_count);
                room->split_count = 0;
            } else if (room->split_due < next) {
                next = room->split_due;
            }
            continue;
        }
        if (room->due > at) {
            if (room->due < next) next = room->due;
            continue;
        }
        if (soak->left == 0) {
            room->due = INT64_MAX;
            continue;
        }
        for (uint64_t members = 1 + random_below(soak->clients, 3); members > 0 && room->split_count == 0; members--) {
            burst(soak, number);
        }
        int is_hasty = random_below(soak->clients, 4) == 0;
        uint64_t in_flight = room->said * soak->room_size - room->heard;
        room->due = is_hasty && in_flight < max_in_flight * soak->room_size
            ? now() + (int64_t)random_below(soak->clients, (uint64_t)soak->idle / 2) : INT64_MAX;
        if (room->due < next) next = room->due;
    }
    return next;
}

static int is_over(const struct soak *soak) {
    if (soak->left > 0) return 0;
    for (size_t number = 0; number < room_count(soak); number++) {
        const struct room *room = &soak->rooms[number];
        if (room->heard < room->said * soak->room_size) return 0;
    }
    return 1;
}

int cchat_soak(
    struct cchat_clients *clients, size_t first, size_t count, size_t room_size, uint64_t messages, int64_t idle,
    struct cchat_progress *progress, struct cchat_deliveries *deliveries) {
    struct soak soak = {
        .clients = clients, .first = first, .count = count, .room_size = room_size, .idle = idle, .left = messages,
        .progress = progress, .last_heard = now(),
    };
    soak.rooms = calloc(room_count(&soak), sizeof *soak.rooms);
    soak.check = cchat_delivery_check_make(room_count(&soak), room_size);
    if (!soak.rooms) abort();
    for (size_t number = 0; number < room_count(&soak); number++) {
        soak.rooms[number].due = now() + (int64_t)random_below(clients, 2 * (uint64_t)idle);
    }
    clients->on_message = on_soak_message;
    clients->listener = &soak;
    uint64_t ended = clients->ended;
    while (soak.code == 0 && !is_over(&soak)) {
        int64_t at = now(), next = send_due(&soak, at);
        // Messages that have not arrived by now are lost.
        if (at - soak.last_heard > clients->patience) break;
        if (clients->ended != ended) soak.code = EPROTO;
        if (run_once(clients, next - now()) < 0) soak.code = errno;
    }
    // A duplicate may still arrive.
    while (soak.code == 0 && run_once(clients, 50000000) > 0) {}
    clients->on_message = 0;
    *deliveries = cchat_delivery_check_result(soak.check);
    cchat_delivery_check_free(soak.check);
    free(soak.rooms);
    return soak.code;
}
