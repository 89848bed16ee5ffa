// Limits of processes, and how they have ended.
#pragma once

#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

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
