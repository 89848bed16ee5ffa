#include "CChat.h"

#include <stdlib.h>
#include <string.h>

// The messages that one receiver has received from one sender.
struct stream {
    uint64_t highest;
    // A bit for each message.
    uint64_t *seen;
    size_t words;
};

// The messages that one member has sent, and received from all.
struct member {
    uint64_t said;
    // The number that the server gave to each of its messages.
    uint32_t *numbers;
    size_t numbers_capacity;
    uint64_t heard;
    uint64_t highest_number;
};

struct cchat_delivery_check {
    size_t count, room_size;
    struct member *members;
    // For each receiver one for each member of its room.
    struct stream *streams;
    uint64_t heard, reordered, duplicate, irregular;
};

struct cchat_delivery_check *cchat_delivery_check_make(size_t rooms, size_t members) {
    struct cchat_delivery_check *check = calloc(1, sizeof *check);
    if (!check) abort();
    check->count = rooms * members;
    check->room_size = members;
    check->members = calloc(check->count, sizeof *check->members);
    check->streams = calloc(check->count * members, sizeof *check->streams);
    if (!check->members || !check->streams) abort();
    return check;
}

void cchat_delivery_check_free(struct cchat_delivery_check *check) {
    for (size_t index = 0; index < check->count * check->room_size; index++) free(check->streams[index].seen);
    for (size_t index = 0; index < check->count; index++) free(check->members[index].numbers);
    free(check->streams);
    free(check->members);
    free(check);
}

// Grows an array to hold this index. New items are 0.
static void *grown(void *items, size_t *count, size_t index, size_t size) {
    if (index < *count) return items;
    size_t more = index * 2 + 16;
    char *larger = realloc(items, more * size);
    if (!larger) abort();
    memset(larger + *count * size, 0, (more - *count) * size);
    *count = more;
    return larger;
}

uint64_t cchat_note_said(struct cchat_delivery_check *check, size_t sender) {
    struct member *member = &check->members[sender];
    member->said++;
    member->numbers = grown(member->numbers, &member->numbers_capacity, member->said, sizeof(uint32_t));
    return member->said;
}

void cchat_note_heard(
    struct cchat_delivery_check *check, size_t receiver, size_t sender, uint64_t sequence, uint64_t number) {
    size_t size = check->room_size;
    if (receiver >= check->count || sender >= check->count || receiver / size != sender / size || sequence == 0
        || sequence > check->members[sender].said || number == 0) {
        check->irregular++;
        return;
    }
    struct stream *stream = &check->streams[receiver * size + sender % size];
    size_t word = sequence / 64;
    uint64_t bit = (uint64_t)1 << sequence % 64;
    stream->seen = grown(stream->seen, &stream->words, word, sizeof(uint64_t));
    if (stream->seen[word] & bit) {
        check->duplicate++;
        return;
    }
    stream->seen[word] |= bit;
    check->heard++;
    struct member *hearing = &check->members[receiver];
    hearing->heard++;
    if (sequence < stream->highest || number <= hearing->highest_number) check->reordered++;
    if (sequence > stream->highest) stream->highest = sequence;
    if (number > hearing->highest_number) hearing->highest_number = number;
    uint32_t *known = &check->members[sender].numbers[sequence];
    if (*known == 0) *known = (uint32_t)number;
    else if (*known != number) check->irregular++;
}

struct cchat_deliveries cchat_delivery_check_result(const struct cchat_delivery_check *check) {
    struct cchat_deliveries deliveries = {
        .heard = check->heard, .reordered = check->reordered, .duplicate = check->duplicate,
        .irregular = check->irregular,
    };
    for (size_t room = 0; room < check->count; room += check->room_size) {
        uint64_t said = 0;
        for (size_t index = room; index < room + check->room_size; index++) said += check->members[index].said;
        deliveries.said += said;
        for (size_t index = room; index < room + check->room_size; index++) {
            const struct member *member = &check->members[index];
            deliveries.lost += said - member->heard;
            // A member that has received everything has seen as many numbers as there are messages.
            if (member->heard == said && member->highest_number != said) deliveries.irregular++;
        }
    }
    return deliveries;
}
