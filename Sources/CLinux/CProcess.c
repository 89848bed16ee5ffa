// Exit statuses of processes.
#define _GNU_SOURCE
#include "CProcess.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int clinux_wait(int pidfd, int *status) {
    enum { p_pidfd = 3, any_child = 0x40000000 };
    siginfo_t information = {0};
    int result = (int)syscall(SYS_waitid, p_pidfd, pidfd, &information, WEXITED | WNOHANG | any_child, (void *)0);
    if (result != 0) return -1;
    if (information.si_pid == 0) return 0;
    *status = information.si_code == CLD_EXITED ? information.si_status << 8 : information.si_status;
    return 1;
}

int clinux_pidfd_exit_status(int pidfd, int *status) {
    // The first version of `struct pidfd_info`, which every later kernel accepts.
    struct {
        uint64_t mask;
        uint64_t cgroup;
        uint32_t ids[11];
        int32_t exit_code;
    } information = {.mask = 1 << 3};
    _Static_assert(sizeof information == 64, "PIDFD_INFO_SIZE_VER0");
    if (ioctl(pidfd, _IOWR(0xFF, 11, information), &information) != 0) return -1;
    if ((information.mask & 1 << 3) == 0) return 0;
    *status = information.exit_code;
    return 1;
}

const char *clinux_environment(const char *name) { return secure_getenv(name); }
