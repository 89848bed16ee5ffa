// What tests need and Swift cannot call.
#pragma once

#include <sys/ptrace.h>
#include <sys/types.h>

// ptrace(2) has variable arguments. 0, or -1 and errno.
static inline int ctest_trace(pid_t pid) {
    return (int)ptrace(PTRACE_SEIZE, pid, (void *)0, (void *)0);
}

static inline int ctest_trace_interrupt(pid_t pid) {
    return (int)ptrace(PTRACE_INTERRUPT, pid, (void *)0, (void *)0);
}

static inline int ctest_trace_end(pid_t pid) {
    return (int)ptrace(PTRACE_DETACH, pid, (void *)0, (void *)0);
}

// Forks a process that becomes `uid`, runs `body` and exits with what it returns. The pid, or -1 and errno.
// `body` runs in a child of a process that may have threads: it must not rely on them.
pid_t ctest_fork_as(uid_t uid, int (*body)(void *), void *argument);
