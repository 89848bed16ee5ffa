#include "CBlockingCall.h"
#include <limits.h>
#include <linux/limits.h>
#include <sys/syscall.h>

enum clinux_blocking_call clinux_blocking_call(long number) {
    switch (number) {
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
#endif
    case SYS_epoll_pwait:
        return clinux_call_epoll_milliseconds;
    case SYS_epoll_pwait2:
        return clinux_call_epoll_timespec;
#ifdef SYS_poll
    case SYS_poll:
        return clinux_call_poll_milliseconds;
#endif
    case SYS_ppoll:
        return clinux_call_poll_timespec;
#ifdef SYS_select
    case SYS_select:
        return clinux_call_select_timeval;
#endif
    case SYS_pselect6:
        return clinux_call_select_timespec;
    case SYS_read:
    case SYS_readv:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_recvmmsg:
        return clinux_call_read;
    case SYS_write:
    case SYS_writev:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg:
        return clinux_call_write;
    case SYS_accept:
    case SYS_accept4:
        return clinux_call_accept;
    case SYS_futex:
        return clinux_call_futex;
    case SYS_futex_waitv:
        return clinux_call_futex_vector;
    case SYS_nanosleep:
        return clinux_call_nanosleep;
    case SYS_clock_nanosleep:
        return clinux_call_clock_nanosleep;
    case SYS_wait4:
    case SYS_waitid:
        return clinux_call_child;
#ifdef SYS_pause
    case SYS_pause:
#endif
    case SYS_rt_sigsuspend:
        return clinux_call_signal;
    case SYS_rt_sigtimedwait:
        return clinux_call_timed_signal;
    case SYS_restart_syscall:
        return clinux_call_restart;
    case SYS_io_uring_enter:
    case SYS_io_getevents:
    case SYS_io_pgetevents:
        return clinux_call_ring;
    default:
        return clinux_call_other;
    }
}

int clinux_may_be_cut_short(long number, const uint64_t arguments[6], int is_pipe) {
    enum { wait_all = 0x100, wait_for_one = 0x10000 };
    switch (number) {
    case SYS_write:
        return is_pipe ? arguments[2] > PIPE_BUF : arguments[2] > 1;
    case SYS_writev:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg:
        return 1;
    case SYS_recvfrom:
        return (arguments[3] & wait_all) != 0;
    case SYS_recvmsg:
        return (arguments[2] & wait_all) != 0;
    case SYS_recvmmsg:
        return arguments[2] > 1 && (arguments[3] & wait_for_one) == 0;
    default:
        return 0;
    }
}
