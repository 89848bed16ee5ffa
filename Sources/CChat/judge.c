#include "CChat.h"

#include <stdlib.h>
#include <string.h>

// What one receiver has heard of one sender.
struct ear {
    uint64_t highest;
    // A bit for each message.
    uint64_t *seen;
    size_t words;
};

// What one member has said, and heard of everybody.
struct member {
    uint64_t said;
    // Which number the server has given to each of its messages.
    uint32_t *numbers;
    size_t room_for_numbers;
    uint64_t heard;
    uint64_t highest_number;
};

struct cchat_judge {
    size_t count, room_size;
    struct member *members;
    // For each receiver one for each of its room.
    struct ear *ears;
    uint64_t heard, reordered, duplicate, irregular;
};

struct cchat_judge *cchat_judge_make(size_t rooms, size_t members) {
    struct cchat_judge *judge = calloc(1, sizeof *judge);
    if (!judge) abort();
    judge->count = rooms * members;
    judge->room_size = members;
    judge->members = calloc(judge->count, sizeof *judge->members);
    judge->ears = calloc(judge->count * members, sizeof *judge->ears);
    if (!judge->members || !judge->ears) abort();
    return judge;
}

void cchat_judge_free(struct cchat_judge *judge) {
    for (size_t index = 0; index < judge->count * judge->room_size; index++) free(judge->ears[index].seen);
    for (size_t index = 0; index < judge->count; index++) free(judge->members[index].numbers);
    free(judge->ears);
    free(judge->members);
    free(judge);
}

// Makes room for an item with this index. What is new is 0.
static void *grown(void *items, size_t *count, size_t index, size_t size) {
    if (index < *count) return items;
    size_t more = index * 2 + 16;
    char *larger = realloc(items, more * size);
    if (!larger) abort();
    memset(larger + *count * size, 0, (more - *count) * size);
    *count = more;
    return larger;
}

uint64_t cchat_judge_say(struct cchat_judge *judge, size_t sender) {
    struct member *member = &judge->members[sender];
    member->said++;
    member->numbers = grown(member->numbers, &member->room_for_numbers, member->said, sizeof(uint32_t));
    return member->said;
}

void cchat_judge_hear(
    struct cchat_judge *judge, size_t receiver, size_t sender, uint64_t sequence, uint64_t number) {
    size_t size = judge->room_size;
    if (receiver >= judge->count || sender >= judge->count || receiver / size != sender / size || sequence == 0
        || sequence > judge->members[sender].said || number == 0) {
        judge->irregular++;
        return;
    }
    struct ear *ear = &judge->ears[receiver * size + sender % size];
    size_t word = sequence / 64;
    uint64_t bit = (uint64_t)1 << sequence % 64;
    ear->seen = grown(ear->seen, &ear->words, word, sizeof(uint64_t));
    if (ear->seen[word] & bit) {
        judge->duplicate++;
        return;
    }
    ear->seen[word] |= bit;
    judge->heard++;
    struct member *hearing = &judge->members[receiver];
    hearing->heard++;
    if (sequence < ear->highest || number <= hearing->highest_number) judge->reordered++;
    if (sequence > ear->highest) ear->highest = sequence;
    if (number > hearing->highest_number) hearing->highest_number = number;
    uint32_t *known = &judge->members[sender].numbers[sequence];
    if (*known == 0) *known = (uint32_t)number;
    else if (*known != number) judge->irregular++;
}

struct cchat_verdict cchat_judge_tell(const struct cchat_judge *judge) {
    struct cchat_verdict verdict = {
        .heard = judge->heard, .reordered = judge->reordered, .duplicate = judge->duplicate,
        .irregular = judge->irregular,
    };
    for (size_t room = 0; room < judge->count; room += judge->room_size) {
        uint64_t said = 0;
        for (size_t index = room; index < room + judge->room_size; index++) said += judge->members[index].said;
        verdict.said += said;
        for (size_t index = room; index < room + judge->room_size; index++) {
            const struct member *member = &judge->members[index];
            verdict.lost += said - member->heard;
            // Who has heard everything has heard as many numbers as there are.
            if (member->heard == said && member->highest_number != said) verdict.irregular++;
        }
    }
    return verdict;
}
