// Limits and exit statuses of processes.
#pragma once

#include <fcntl.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct clinux_limit {
    uint64_t soft;
    uint64_t hard;
};

// prlimit(2), read only. `process` 0 is the caller. 0, or -1 and errno.
static inline int clinux_get_limit(pid_t process, uint32_t resource, struct clinux_limit *limit) {
    return (int)syscall(SYS_prlimit64, process, resource, (void *)0, limit);
}

// prlimit(2). `process` 0 is the caller. 0, or -1 and errno.
static inline int clinux_set_limit(pid_t process, uint32_t resource, const struct clinux_limit *limit) {
    return (int)syscall(SYS_prlimit64, process, resource, limit, (void *)0);
}

// waitid(2) for a child of this process, without blocking: 1 and its status as in wait(2); 0: it has not
// ended; -1 and errno.
int clinux_wait(int pidfd, int *status);

// The exit status of any process by its pidfd (Linux 6.15): 1 and the status as in wait(2); 0: its parent has
// not waited for it yet; -1 and errno.
int clinux_pidfd_exit_status(int pidfd, int *status);

// Makes a descriptor close-on-exec: 1; 0: it is already; -1 and errno.
static inline int clinux_take_inherited(int fd) {
    int flags = fcntl(fd, F_GETFD);
    if (flags == -1) return -1;
    if (flags & FD_CLOEXEC) return 0;
    return fcntl(fd, F_SETFD, flags | FD_CLOEXEC) == 0 ? 1 : -1;
}

// process_madvise(2) with MADV_PAGEOUT: the number of bytes advised, or -1 and errno.
static inline ssize_t clinux_page_out(int pidfd, const struct iovec *ranges, unsigned long count) {
    enum { sys_process_madvise = 440, pageout = 21 };
    return syscall(sys_process_madvise, pidfd, ranges, count, pageout, 0);
}

// process_vm_readv(2) of one range: the number of bytes read, which may be fewer, or -1 and errno.
static inline ssize_t clinux_read_memory(pid_t process, uint64_t address, void *buffer, size_t count) {
    struct iovec local = {buffer, count};
    struct iovec remote = {(void *)(uintptr_t)address, count};
    return syscall(SYS_process_vm_readv, process, &local, 1, &remote, 1, 0);
}

// A variable of the environment (secure_getenv(3), for which the headers need _GNU_SOURCE): also NULL if this
// program runs with more privileges than its caller (such as setuid).
const char *clinux_environment(const char *name);
