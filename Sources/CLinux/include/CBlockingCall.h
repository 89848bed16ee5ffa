#pragma once

#include <stdint.h>

// The system calls in which threads of programs usually wait, by what they wait for.
enum clinux_blocking_call {
    clinux_call_other,
    clinux_call_epoll_milliseconds,  // epoll_wait, epoll_pwait: set, …, …, milliseconds
    clinux_call_epoll_timespec,      // epoll_pwait2: set, …, …, timespec
    clinux_call_poll_milliseconds,   // poll: entries, count, milliseconds
    clinux_call_poll_timespec,       // ppoll: entries, count, timespec
    clinux_call_select_timeval,      // select: count, three sets, timeval
    clinux_call_select_timespec,     // pselect6: count, three sets, timespec
    clinux_call_read,                // read, recvfrom, recvmsg and their relatives: descriptor, …
    clinux_call_write,               // write, sendto, sendmsg and their relatives: descriptor, …
    clinux_call_accept,              // accept, accept4: descriptor, …
    clinux_call_futex,               // futex: …, …, …, timespec
    clinux_call_futex_vector,        // futex_waitv: …, …, …, timespec
    clinux_call_nanosleep,           // nanosleep: timespec
    clinux_call_clock_nanosleep,     // clock_nanosleep: …, …, timespec
    clinux_call_child,               // wait4, waitid
    clinux_call_signal,              // pause, rt_sigsuspend
    clinux_call_timed_signal,        // rt_sigtimedwait: …, …, timespec
    clinux_call_restart,             // restart_syscall: one of the above, with a timeout, after a stop
    clinux_call_ring,                // io_uring_enter, io_getevents
};

// Classifies a system call of this architecture by its number.
enum clinux_blocking_call clinux_blocking_call(long number);

// Whether a blocked call that reads or writes may have done a part of its work: a stop would make it return with that part
// only, which its program may never have seen.
int clinux_may_be_cut_short(long number, const uint64_t arguments[6], int is_pipe);
