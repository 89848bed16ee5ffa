// What Swift cannot call: macros that compute, functions with variable arguments, and system calls
// without a declaration. Everything else is called from Swift directly.
#pragma once

#include "CLaunch.h"

#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

// Linux 6.5; not in the headers of older distributions.
#define CLINUX_SO_PEERPIDFD 77

// What follows hides behind _GNU_SOURCE in the system's headers, which a header cannot rely on.
#define CLINUX_POLLRDHUP 0x2000

struct clinux_peer_credentials {
    pid_t pid;
    uid_t uid;
    gid_t gid;
};

// The kernel's word for who is at the other end of a Unix socket. 0, or -1 and errno.
static inline int clinux_get_peer_credentials(int fd, struct clinux_peer_credentials *credentials) {
    socklen_t length = sizeof *credentials;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, credentials, &length);
}

// pidfd_open(2): a descriptor, or -1 and errno. Close-on-exec is implied.
static inline int clinux_pidfd_open(pid_t pid) {
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

// pidfd_send_signal(2): 0, or -1 and errno.
static inline int clinux_pidfd_send_signal(int pidfd, int signal_number) {
    return (int)syscall(SYS_pidfd_send_signal, pidfd, signal_number, (void *)0, 0);
}

// accept4(2), close-on-exec and non-blocking: a descriptor, or -1 and errno.
static inline int clinux_accept(int fd) {
    return (int)syscall(SYS_accept4, fd, (void *)0, (void *)0, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

// The type bits of a file's mode, as far as the kernel knows them without asking a file system's server, which may
// never answer. -1 and errno on failure.
int clinux_file_type(int fd);

// open(2) and openat(2) without their variable arguments; close-on-exec always.
static inline int clinux_openat(int directory, const char *path, int flags, mode_t mode) {
    return openat(directory, path, flags | O_CLOEXEC, mode);
}

static inline int clinux_duplicate(int fd) {
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

// pipe2(2), close-on-exec and non-blocking: 0, or -1 and errno.
static inline int clinux_pipe(int ends[2]) {
    return (int)syscall(SYS_pipe2, ends, O_CLOEXEC | O_NONBLOCK);
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

struct clinux_limit {
    uint64_t soft;
    uint64_t hard;
};

// prlimit(2), to look only. `process` 0 is the caller. 0, or -1 and errno.
static inline int clinux_get_limit(pid_t process, uint32_t resource, struct clinux_limit *limit) {
    return (int)syscall(SYS_prlimit64, process, resource, (void *)0, limit);
}

// waitid(2) for a child of ours, without waiting: 1 and its status as in wait(2); 0: it has not ended; -1 and errno.
int clinux_wait(int pidfd, int *status);

// How the process of a pidfd ended, whoever's child it was (Linux 6.15): 1 and its status as in wait(2); 0: its parent
// has not waited for it yet; -1 and errno.
int clinux_pidfd_exit_status(int pidfd, int *status);
