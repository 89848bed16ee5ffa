#include "crowd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    // Messages that a room may have on their way before it has to wait.
    most_on_the_way = 64,
    most_in_burst = 6,
};

struct room {
    // When it goes on; INT64_MAX: when everything is heard.
    int64_t due;
    uint64_t said, heard;
    int64_t last_heard;
    // The rest of a frame whose beginning was sent, by whom, and when it is its turn.
    size_t split_by, split_count;
    int64_t split_due;
    unsigned char split[256];
};

struct stir {
    struct cchat_crowd *crowd;
    size_t first, count, room_size;
    int64_t idle;
    uint64_t left;
    struct room *rooms;
    struct cchat_judge *judge;
    struct cchat_progress *progress;
    int64_t last_heard;
    int code;
};

static size_t room_count(const struct stir *stir) { return stir->count / stir->room_size; }

// About as long as it takes to fall asleep: before, at this moment, or after; now and then at once.
static int64_t draw_pause(struct stir *stir) {
    uint64_t idle = (uint64_t)stir->idle;
    switch (draw(stir->crowd, 8)) {
    case 0: return 0;
    case 1: case 2: return (int64_t)draw(stir->crowd, idle);
    case 3: case 4: case 5: return (int64_t)(idle - idle / 10 + draw(stir->crowd, idle / 5));
    default: return (int64_t)(idle + draw(stir->crowd, 2 * idle));
    }
}

static void hear_stir(void *listener, size_t index, const struct message *message) {
    struct stir *stir = listener;
    if (index < stir->first || index >= stir->first + stir->count) return;
    size_t receiver = index - stir->first;
    struct room *room = &stir->rooms[receiver / stir->room_size];
    cchat_judge_hear(stir->judge, receiver, message->sender, message->sequence, message->number);
    stir->last_heard = room->last_heard = stir->crowd->received_at;
    room->heard++;
    __atomic_store_n(&stir->progress->heard, stir->progress->heard + 1, __ATOMIC_RELAXED);
    if (room->due == INT64_MAX && room->heard >= room->said * stir->room_size && room->split_count == 0) {
        room->due = room->last_heard + draw_pause(stir);
    }
}

// A few messages of one member, in one piece, one by one, or with the last of them in two.
static void burst(struct stir *stir, size_t number) {
    struct room *room = &stir->rooms[number];
    size_t member = number * stir->room_size + (size_t)draw(stir->crowd, stir->room_size);
    size_t index = stir->first + member;
    unsigned char bytes[most_in_burst * 256];
    size_t count = 0, last = 0;
    uint64_t messages = 1 + draw(stir->crowd, most_in_burst);
    if (messages > stir->left) messages = stir->left;
    if (messages == 0) return;
    int is_together = draw(stir->crowd, 4) != 0, is_split = draw(stir->crowd, 8) == 0;
    for (uint64_t message = 0; message < messages && stir->code == 0; message++) {
        last = count;
        count += put_saying(stir->crowd, index, cchat_judge_say(stir->judge, member), bytes + count);
        room->said++;
        stir->left--;
        if (!is_together && message + 1 < messages) {
            stir->code = give(stir->crowd, index, bytes, count);
            count = 0;
        }
    }
    __atomic_store_n(&stir->progress->said, stir->progress->said + messages, __ATOMIC_RELAXED);
    if (is_split && room->split_count == 0) {
        if (last > count) last = 0;
        size_t cut = last + 1 + (size_t)draw(stir->crowd, count - last - 1);
        room->split_by = index;
        room->split_count = count - cut;
        memcpy(room->split, bytes + cut, room->split_count);
        room->split_due = now() + (int64_t)draw(stir->crowd, 2 * (uint64_t)stir->idle);
        count = cut;
    }
    if (stir->code == 0) stir->code = give(stir->crowd, index, bytes, count);
}

// What is to be done now, and when the next is.
static int64_t go_on(struct stir *stir, int64_t at) {
    int64_t next = at + 50000000;
    for (size_t number = 0; number < room_count(stir) && stir->code == 0; number++) {
        struct room *room = &stir->rooms[number];
        if (room->split_count > 0) {
            if (room->split_due <= at) {
                stir->code = give(stir->crowd, room->split_by, room->split, room->split_count);
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
        if (stir->left == 0) {
            room->due = INT64_MAX;
            continue;
        }
        for (uint64_t members = 1 + draw(stir->crowd, 3); members > 0 && room->split_count == 0; members--) {
            burst(stir, number);
        }
        int is_hasty = draw(stir->crowd, 4) == 0;
        uint64_t on_the_way = room->said * stir->room_size - room->heard;
        room->due = is_hasty && on_the_way < most_on_the_way * stir->room_size
            ? now() + (int64_t)draw(stir->crowd, (uint64_t)stir->idle / 2) : INT64_MAX;
        if (room->due < next) next = room->due;
    }
    return next;
}

static int is_over(const struct stir *stir) {
    if (stir->left > 0) return 0;
    for (size_t number = 0; number < room_count(stir); number++) {
        const struct room *room = &stir->rooms[number];
        if (room->heard < room->said * stir->room_size) return 0;
    }
    return 1;
}

int cchat_stir(
    struct cchat_crowd *crowd, size_t first, size_t count, size_t room_size, uint64_t messages, int64_t idle,
    struct cchat_progress *progress, struct cchat_verdict *verdict) {
    struct stir stir = {
        .crowd = crowd, .first = first, .count = count, .room_size = room_size, .idle = idle, .left = messages,
        .progress = progress, .last_heard = now(),
    };
    stir.rooms = calloc(room_count(&stir), sizeof *stir.rooms);
    stir.judge = cchat_judge_make(room_count(&stir), room_size);
    if (!stir.rooms) abort();
    for (size_t number = 0; number < room_count(&stir); number++) {
        stir.rooms[number].due = now() + (int64_t)draw(crowd, 2 * (uint64_t)idle);
    }
    crowd->hear = hear_stir;
    crowd->listener = &stir;
    uint64_t ended = crowd->ended;
    while (stir.code == 0 && !is_over(&stir)) {
        int64_t at = now(), next = go_on(&stir, at);
        // What has not come by now is lost.
        if (at - stir.last_heard > crowd->patience) break;
        if (crowd->ended != ended) stir.code = EPROTO;
        if (turn(crowd, next - now()) < 0) stir.code = errno;
    }
    // What comes twice may come now.
    while (stir.code == 0 && turn(crowd, 50000000) > 0) {}
    crowd->hear = 0;
    *verdict = cchat_judge_tell(stir.judge);
    cchat_judge_free(stir.judge);
    free(stir.rooms);
    return stir.code;
}
