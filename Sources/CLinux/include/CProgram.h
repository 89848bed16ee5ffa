// Programs as they are: their descriptors, the results of their calls, and their start.
#pragma once

#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

// pidfd_getfd(2): a duplicate of a descriptor of another process, close-on-exec; or -1 and errno.
static inline int clinux_get_descriptor(int pidfd, int descriptor) {
    enum { sys_pidfd_getfd = 438 };
    return (int)syscall(sys_pidfd_getfd, pidfd, descriptor, 0);
}

// tgkill(2): a signal for one thread of a process. 0, or -1 and errno.
static inline int clinux_signal_thread(pid_t process, pid_t thread, int signal_number) {
    return (int)syscall(SYS_tgkill, process, thread, signal_number);
}

// The result of the system call that a stopped or frozen thread has not returned from to its program yet: a negative
// errno, with -512 to -516 for a call that goes on when the thread does. It is read as a debugger would, which neither the
// thread nor its parent notices. 0, or -1 and errno.
int clinux_pending_result(pid_t thread, long *result);

// Sets the end of a wait that a stop has interrupted and that goes on with the rest of its timeout: ppoll and select, which
// a stop prolongs otherwise. `address`, `unit`: of the timeout in the memory of the process, and nanoseconds in its second
// number; `end`: in nanoseconds of CLOCK_MONOTONIC. The thread is stopped for a moment. 0; -1: it does not wait in this call
// any more, or errno.
int clinux_end_wait_at(
    pid_t thread, long number, const uint64_t arguments[6], uint64_t address, int64_t unit, int64_t end);

// Whether two threads have the same descriptors. 1 or 0; -1 and errno.
static inline int clinux_have_same_descriptors(pid_t thread, pid_t other) {
    enum { kcmp_files = 2 };
    int result = (int)syscall(SYS_kcmp, thread, other, kcmp_files, 0, 0);
    return result < 0 ? -1 : result == 0;
}

// pidfd_open(2) of a thread (Linux 6.9): a descriptor, or -1 and errno.
static inline int clinux_pidfd_open_thread(pid_t thread) {
    enum { pidfd_thread = 0200 };
    return (int)syscall(SYS_pidfd_open, thread, pidfd_thread);
}

// When a thread that does not run ran last, in nanoseconds of the scheduler's clock; -1: that cannot be known.
int64_t clinux_ran_until(pid_t process, pid_t thread);

// Nanoseconds by which CLOCK_MONOTONIC is ahead of the scheduler's clock of this processor, on which the calling thread
// runs for a moment. They differ, and change, by what interrupts and other virtual machines have taken. 0, or -1: it
// may not run there, or the kernel does not tell.
int clinux_scheduler_offset(int processor, int64_t *offset);

// A child that runs a program once it is let.
struct clinux_gated_child {
    pid_t pid;
    int gate;    // write a byte: the program starts; closed before that: the child ends
    int report;  // gets the errno of a program that could not be started; closed once it has been
};

// Forks a child with this signal mask, for a process with a single thread. The program is looked up in PATH, and gets the
// death signal, if it is not 0, when that thread ends. 0, or -1 and errno.
int clinux_fork_gated(
    char *const arguments[], const sigset_t *mask, int death_signal, struct clinux_gated_child *child);

// Forks a child that waits until this process has ended, and runs this process's own program then, with other arguments, in
// a session of its own. For a process with a single thread. A byte that is written to `leash`, a socket, ends the child
// instead; no other process may have it. The child's pid, or -1 and errno.
pid_t clinux_fork_guard(char *const arguments[], int *leash);
