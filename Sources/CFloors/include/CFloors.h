// The least work that any implementation must do, in bare system calls, which Nightbell is compared with; and
// the memory in which measurements are collected. All processes of a run map it, so that reporting costs
// nothing while something is measured.
#pragma once

#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// ── Measurements ─────────────────────────────────────────────────────────────────────────────────────────────

// A caller's packet. The time is read immediately before send(2).
struct cfloors_packet {
    uint64_t sequence;
    int64_t sent_at;
};

enum cfloors_stage {
    cfloors_starting = 0,
    // The sleeper runs and reads for itself.
    cfloors_running = 1,
    // The sleeper reads nothing before it is woken (ours), or is about to block in recv(2) (the floor's).
    cfloors_waiting = 2,
    cfloors_failed = 3,
};

// The report of one sleeper: only the sleeper writes, only the harness reads. Two cache lines of its own.
struct cfloors_slot {
    uint32_t stage;
    int32_t pid;
    // Packets read. Written last: a reader that sees it sees the other fields.
    uint64_t received;
    uint64_t sequence;
    int64_t sent_at;
    int64_t received_at;
    // Packets with a sequence that had been seen before, and sequences that never came.
    uint64_t duplicates;
    uint64_t skipped;
    // Wakes by traffic, and those of them that found nothing to read.
    uint64_t wakes;
    uint64_t empty_wakes;
    // Runs of the keep-alive handler, and when the last one was.
    uint64_t runs;
    int64_t ran_at;
    // The longest time between two runs, the shortest, and the timeout that was asked for.
    int64_t longest_gap;
    int64_t shortest_gap;
    int64_t timeout;
    // When the timeout was set, and how many runs came later than the timeout after the run before.
    int64_t began_at;
    uint64_t late_runs;
};

// CLOCK_MONOTONIC in nanoseconds.
int64_t cfloors_now(void);

uint32_t cfloors_stage_of(const struct cfloors_slot *slot);
void cfloors_set_stage(struct cfloors_slot *slot, uint32_t stage);
uint64_t cfloors_received(const struct cfloors_slot *slot);
uint64_t cfloors_runs(const struct cfloors_slot *slot);

// Sends one packet: its time is read here. `address` may be null. 0, or errno.
int cfloors_send(int fd, uint64_t sequence, const void *address, unsigned address_length);

// Reads one packet, if there is one, and records it. The time is read directly after recv(2). 1: recorded; 0:
// nothing was there; -1: the end, or an error.
int cfloors_receive(int fd, struct cfloors_slot *slot, int flags);

// The times of all runs of keep-alive handlers of all sleepers, up to the capacity.
struct cfloors_log {
    uint64_t count;
    int64_t times[];
};

// Records a run of the keep-alive handler.
void cfloors_note_run(struct cfloors_slot *slot, struct cfloors_log *log, uint64_t capacity);

// ── Processes ────────────────────────────────────────────────────────────────────────────────────────────────

// fork(2), for a process with one thread. The child dies with its parent.
pid_t cfloors_fork(void);

// Has the kernel kill this process when its parent ends. False: the parent has ended already.
int cfloors_die_with(pid_t parent);

// Has the kernel kill this process once no process has the writing end of this pipe any more, whatever its
// parent is, and even while it is stopped or frozen. False: that has happened already.
int cfloors_die_with_pipe(int reading);

// Ignores children that stop or end: no SIGCHLD, no zombies.
void cfloors_ignore_children(void);

// Keeps the calling process and its children away from the first of its processors, if there are others. 0, or an error number.
int cfloors_leave_a_processor(void);

// Leaves the processors to all other processes. 0, or an error number.
int cfloors_run_when_idle(void);

// Opens what is closed of descriptors 0 to 2, so that nothing else is taken for them; writing there fails.
void cfloors_hold_standard_descriptors(void);

// accept4(2), close-on-exec. -1 and errno.
int cfloors_accept(int fd);

// Closes all descriptors from 3 on but those given, which must be in ascending order.
void cfloors_close_all_but(const int *kept, size_t count);

// Notes SIGINT, SIGTERM and SIGHUP instead of dying of them.
void cfloors_catch_interrupts(void);
int cfloors_interrupted(void);

// Takes so many locks of a byte each, which all processes with this open file hold. 0 or an errno.
int cfloors_take_locks(int file, int count);

// pipe2(2), close-on-exec: 0, or -1 and errno.
int cfloors_pipe(int *ends);

// An anonymous file, close-on-exec. -1 and errno.
int cfloors_memory(const char *name);

// ── Floors ───────────────────────────────────────────────────────────────────────────────────────────────────

// A sleeper: blocks in recv(2) on its own socket, for ever, and records packets.
void cfloors_sleeper(int fd, struct cfloors_slot *slot);

// The handles by which the floor's waker resumes a sleeper.
struct cfloors_target {
    int socket;
    // `cgroup.freeze` of its cgroup, or -1.
    int freezer;
    // Its pidfd, or -1.
    int process;
};

// The waker: epoll_wait(2), then one write(2) or pidfd_send_signal(2) for each readable socket. Returns 0
// when `stop` is readable, EINTR when a signal asked it to end, or another errno.
int cfloors_waker(const struct cfloors_target *targets, size_t count, int stop);

// Reads packets with descriptors from `socket` until it ends, and watches each descriptor. Writes the time at
// which `expected` of them were watched to `*done_at`. A packet without descriptors has it close all of them,
// set `*done_at` to 0, and start again. 0, or errno.
int cfloors_adopter(int socket, size_t expected, int64_t *done_at);

// Sends `total` descriptors, `batch` in a packet with `bytes` for content. `total` is a multiple of
// `batch`. Does not wait for answers, but reads and counts them in `*answers` (if that
// is not null) while the queue is full. 0, or errno.
int cfloors_hand_over(
    int socket, const int *descriptors, size_t total, size_t batch, const void *bytes, size_t length,
    size_t *answers);

// Reads packets until `*answers` are `expected`. 0, or errno; ETIMEDOUT when none comes for ten seconds.
int cfloors_await_answers(int socket, size_t *answers, size_t expected);

enum cfloors_pings_order {
    cfloors_pings_wait = 0,
    cfloors_pings_run = 1,
    cfloors_pings_end = 2,
};

enum { cfloors_pings_capacity = 1 << 20 };

// Counters of the far end of many connections. In shared memory: only that end writes, except for `order`.
struct cfloors_pings {
    uint32_t order;
    uint32_t unused;
    uint64_t connected;
    // Pings received from the other side, and own pings that were sent and answered.
    uint64_t heard;
    uint64_t sent;
    uint64_t answered;
    // Anything else.
    uint64_t irregular;
    // Nanoseconds from each own ping to its answer.
    int64_t latencies[cfloors_pings_capacity];
    // Pings received on each connection.
    uint32_t heard_of[cfloors_pings_capacity];
};

const uint32_t *cfloors_pings_heard(const struct cfloors_pings *pings);
const int64_t *cfloors_pings_latencies(const struct cfloors_pings *pings);

// The far end: accepts `count` connections, answers "PING\n" by "PONG\n", and sends "ping\n" on each once in each
// interval, evenly spread. 0 when it is to end, or errno.
int cfloors_ping_peer(int listener, size_t count, int64_t interval, struct cfloors_pings *pings);

// The near end, as bare as possible: sends "PING\n" on each socket no later than `interval` after the last,
// and at most `window` earlier, reads the answers, and answers "ping\n" by "pong\n". It sends as much at a
// time as these rules allow. 0 when it is ordered to end, or errno.
int cfloors_pinger(
    const int *sockets, size_t count, int64_t interval, int64_t window, struct cfloors_pings *pings);

// pidfd_open(2).
int cfloors_pidfd(pid_t pid);

// A duplicate of a descriptor of another process, close-on-exec. -1 and errno.
int cfloors_descriptor_of(pid_t pid, int descriptor);

// posix_spawn_file_actions_addclosefrom_np(3): 0 or an errno.
int cfloors_spawn_closes_from(posix_spawn_file_actions_t *actions, int first);

// Raises the soft limit of descriptors to the hard one; returns it.
size_t cfloors_raise_descriptor_limit(void);

// The floor of relaunching: watches the sockets, and starts `program` (with the argument `floor`) for each
// readable one, with the socket as its descriptor 3. Returns 0 when `stop` is readable, or errno.
int cfloors_spawner(const int *sockets, size_t count, const char *program, int stop);
