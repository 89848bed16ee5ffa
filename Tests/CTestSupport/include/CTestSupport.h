// Functions for tests that Swift cannot call.
#pragma once

#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/types.h>

// ptrace(2) has variable arguments. 0, or -1 and errno. The tracer is the calling thread.
static inline int ctest_trace(pid_t pid) {
    return (int)ptrace(PTRACE_SEIZE, pid, (void *)0, (void *)0);
}

static inline int ctest_trace_interrupt(pid_t pid) {
    return (int)ptrace(PTRACE_INTERRUPT, pid, (void *)0, (void *)0);
}

static inline int ctest_trace_end(pid_t pid) {
    return (int)ptrace(PTRACE_DETACH, pid, (void *)0, (void *)0);
}

// Makes the calling thread, and it alone, act as another user without privileges. There is no way back.
int ctest_become(uid_t uid);

// Mounts a file system with a server that never answers (FUSE), opens its root, and detaches it again. Returns the
// server's descriptor: a process that waits for the file system does so until that is closed. -1 and errno on failure.
int ctest_mute_file_system(const char *directory, int *root);

// Gives the calling thread a network of its own, with nothing in it but a loopback device that is down. 0, or -1 and
// errno.
int ctest_own_network(void);

// Moves the calling thread to the network namespace of this file, for good; without root it fails. Returns 0, or -1 and
// errno.
int ctest_enter_network(const char *path);

// Runs a shell command in the namespaces of the calling thread: its exit status, or another number than 0.
int ctest_run(const char *command);

// The bytes of the heap in use.
size_t ctest_heap_in_use(void);

// Sets how many descriptors a process may open; it keeps those that it has. 0, or -1 and errno.
int ctest_limit_descriptors(pid_t pid, rlim_t limit);

// Puts the loopback device of the network that a socket belongs to up or down. 0, or -1 and errno.
int ctest_set_loopback(int socket, int up);
