#define _GNU_SOURCE
#include "CFloors.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(struct cfloors_slot) == 128, "two cache lines");

int64_t cfloors_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

uint32_t cfloors_stage_of(const struct cfloors_slot *slot) {
    return __atomic_load_n(&slot->stage, __ATOMIC_ACQUIRE);
}

void cfloors_set_stage(struct cfloors_slot *slot, uint32_t stage) {
    __atomic_store_n(&slot->stage, stage, __ATOMIC_RELEASE);
}

uint64_t cfloors_received(const struct cfloors_slot *slot) {
    return __atomic_load_n(&slot->received, __ATOMIC_ACQUIRE);
}

uint64_t cfloors_runs(const struct cfloors_slot *slot) {
    return __atomic_load_n(&slot->runs, __ATOMIC_ACQUIRE);
}

int cfloors_send(int fd, uint64_t sequence, const void *address, unsigned address_length) {
    struct cfloors_packet packet = {.sequence = sequence};
    packet.sent_at = cfloors_now();
    ssize_t sent = sendto(fd, &packet, sizeof packet, MSG_NOSIGNAL, address, address_length);
    if (sent < 0) return errno;
    return sent == sizeof packet ? 0 : EMSGSIZE;
}

int cfloors_receive(int fd, struct cfloors_slot *slot, int flags) {
    struct cfloors_packet packet;
    ssize_t length = recv(fd, &packet, sizeof packet, flags);
    int64_t now = cfloors_now();
    if (length < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (length != sizeof packet) return -1;
    if (packet.sequence <= slot->sequence) {
        slot->duplicates += 1;
    } else {
        slot->skipped += packet.sequence - slot->sequence - 1;
        slot->sequence = packet.sequence;
    }
    slot->sent_at = packet.sent_at;
    slot->received_at = now;
    __atomic_store_n(&slot->received, slot->received + 1, __ATOMIC_RELEASE);
    return 1;
}

void cfloors_note_run(struct cfloors_slot *slot, struct cfloors_log *log, uint64_t capacity) {
    int64_t now = cfloors_now();
    uint64_t place = __atomic_fetch_add(&log->count, 1, __ATOMIC_RELAXED);
    if (place < capacity) log->times[place] = now;
    if (slot->ran_at) {
        int64_t gap = now - slot->ran_at;
        if (gap > slot->longest_gap) slot->longest_gap = gap;
        if (gap > slot->timeout) slot->late_runs += 1;
        if (slot->shortest_gap == 0 || gap < slot->shortest_gap) slot->shortest_gap = gap;
    }
    slot->ran_at = now;
    __atomic_store_n(&slot->runs, slot->runs + 1, __ATOMIC_RELEASE);
}

int cfloors_memory(const char *name) { return memfd_create(name, MFD_CLOEXEC); }
