// Wrappers of what Swift cannot call: function-like macros, functions with variable arguments, and system
// calls without a declaration. Everything else is called from Swift directly.
#pragma once

#include "CBlockingCall.h"
#include "CDatagram.h"
#include "CLaunch.h"
#include "CProcess.h"
#include "CProgram.h"
#include "CSocketPath.h"

#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

// Linux 6.5; not in the headers of older distributions.
#define CLINUX_SO_PEERPIDFD 77
// Only in asm/socket.h.
#define CLINUX_SO_PEERGROUPS 59

// The following need _GNU_SOURCE in the system's headers, which a header cannot rely on.
#define CLINUX_POLLRDHUP 0x2000

struct clinux_peer_credentials {
    pid_t pid;
    uid_t uid;
    gid_t gid;
};

// The kernel's credentials of the other end of a Unix socket. 0, or -1 and errno.
static inline int clinux_get_peer_credentials(int fd, struct clinux_peer_credentials *credentials) {
    socklen_t length = sizeof *credentials;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, credentials, &length);
}

// pidfd_open(2): a descriptor, or -1 and errno. Close-on-exec is implied.
static inline int clinux_pidfd_open(pid_t pid) {
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

enum clinux_thaw_method {
    CLINUX_THAW_NOTHING,
    CLINUX_THAW_BY_CGROUP,
    CLINUX_THAW_BY_SIGNAL,
};

// Thaws a stopped process: by its open cgroup.freeze, or by its pidfd. 0, or -1 and errno.
static inline int clinux_thaw(int fd, enum clinux_thaw_method method) {
    switch (method) {
    case CLINUX_THAW_NOTHING: return 0;
    case CLINUX_THAW_BY_CGROUP: return pwrite(fd, "0", 1, 0) == 1 ? 0 : -1;
    case CLINUX_THAW_BY_SIGNAL: return (int)syscall(SYS_pidfd_send_signal, fd, SIGCONT, (void *)0, 0);
    }
    return -1;
}

// pidfd_send_signal(2): 0, or -1 and errno.
static inline int clinux_pidfd_send_signal(int pidfd, int signal_number) {
    return (int)syscall(SYS_pidfd_send_signal, pidfd, signal_number, (void *)0, 0);
}

// The same for all processes of the group that the process leads: 0, or -1 and errno; EINVAL: the kernel is older than 6.9.
static inline int clinux_pidfd_signal_group(int pidfd, int signal_number) {
    enum { pidfd_signal_process_group = 4 };
    return (int)syscall(
        SYS_pidfd_send_signal, pidfd, signal_number, (void *)0, pidfd_signal_process_group);
}

// accept4(2), close-on-exec and non-blocking: a descriptor, or -1 and errno.
static inline int clinux_accept(int fd) {
    return (int)syscall(SYS_accept4, fd, (void *)0, (void *)0, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

// The type bits of a file's mode, as far as the kernel knows them without asking a file system's server,
// which may never answer. -1 and errno on failure.
int clinux_file_type(int fd);

// Interrupts the calling thread each millisecond, by a signal without effect (the last real-time signal for which the
// process has no use, unblocked for this thread), so that it waits no longer than that where a signal ends the wait.
// 0: until `timer_delete`, which the thread has to call. Otherwise errno.
int clinux_interrupt_each_millisecond(timer_t *timer);

// close(2) that waits a millisecond at most for the peers of streams that linger.
int clinux_close_promptly(int fd);

// Discards packets of a Unix socket that cannot receive any more (SHUT_RD), with the descriptors in them: `most` at
// the most. Interrupted each millisecond, it waits no longer than that for the streams in 256 packets. Returns 1 if no
// packet is left, else 0. The socket has to name senders (SO_PASSCRED), which distinguishes an empty packet from none.
int clinux_discard_packets(int fd, int most);

// The same, and interrupts itself.
int clinux_discard_packets_promptly(int fd, int most);

// Opens a file of procfs or cgroup2, close-on-exec: a descriptor, or -1 and errno. EMEDIUMTYPE: it is on
// another file system, and was not opened, because opening has side effects on some devices.
int clinux_open_file_of_kernel(const char *path, int flags);

// For the life of the process, makes each large block of the heap a mapping of its own, so that a grown array
// leaves nothing behind (by default, the heap keeps such blocks after the first was freed); and makes
// short-lived threads share one heap, so that they reuse each other's free memory.
void clinux_keep_little_memory(void);

// Makes malloc return blocks of 128 KiB and more when they are freed, also after the first of them: by
// default it raises this threshold with each freed block.
void clinux_release_large_blocks_at_once(void);

// Returns freed memory to the kernel, in whole pages.
void clinux_release_free_memory(void);

// open(2) and openat(2) without their variable arguments; close-on-exec always.
static inline int clinux_openat(int directory, const char *path, int flags, mode_t mode) {
    return openat(directory, path, flags | O_CLOEXEC, mode);
}

static inline int clinux_duplicate(int fd) {
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

// Whether a descriptor is closed by execve(2). 0, or -1 and errno.
static inline int clinux_set_close_on_exec(int fd, int on) {
    return fcntl(fd, F_SETFD, on ? FD_CLOEXEC : 0);
}

// Has calls on it wait, as for a descriptor without O_NONBLOCK. 0, or -1 and errno.
static inline int clinux_set_blocking(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags == -1 ? -1 : fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

// memfd_create(2), close-on-exec: a descriptor, or -1 and errno.
static inline int clinux_memory_file(const char *name) {
    enum { mfd_cloexec = 1 };
    return (int)syscall(SYS_memfd_create, name, mfd_cloexec);
}

// close_range(2): 0, or -1 and errno.
static inline int clinux_close_range(unsigned first, unsigned last) {
    return (int)syscall(SYS_close_range, first, last, 0);
}

// fork(2), which Swift does not import because most programs have threads.
static inline pid_t clinux_fork(void) {
    return fork();
}

// A store that the compiler neither splits nor moves before an earlier one.
static inline void clinux_store_half(uint32_t *word, uint32_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline size_t clinux_cmsg_space(size_t length) {
    return CMSG_SPACE(length);
}

static inline size_t clinux_cmsg_header_length(void) {
    return CMSG_LEN(0);
}

static inline struct cmsghdr *clinux_cmsg_first(struct msghdr *message) {
    return CMSG_FIRSTHDR(message);
}

static inline struct cmsghdr *clinux_cmsg_next(struct msghdr *message, struct cmsghdr *header) {
    return CMSG_NXTHDR(message, header);
}

static inline void *clinux_cmsg_data(struct cmsghdr *header) {
    return CMSG_DATA(header);
}

// Anonymous memory as a file that can be sealed, close-on-exec: a descriptor, or -1 and errno.
int clinux_sealable_memory(const char *name);

// Fixes the size for all processes, and makes the content read-only for all that have not mapped it for
// writing yet. 0, or -1 and errno.
int clinux_seal_for_readers(int fd);

// Makes the child of a fork see zeros here. 0, or -1 and errno.
static inline int clinux_wipe_on_fork(void *address, size_t size) {
    enum { wipe_on_fork = 18 };
    return (int)syscall(SYS_madvise, address, size, wipe_on_fork);
}

// 1: the file has exactly this size, permanently.
int clinux_is_sealed_page(int fd, size_t size);

static inline void clinux_store_release(uint64_t *word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline uint64_t clinux_load_acquire(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
