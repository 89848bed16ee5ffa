#define _GNU_SOURCE
#include "CFloors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int cfloors_die_with(pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return getppid() == parent;
}

int cfloors_die_with_pipe(int reading) {
    if (fcntl(reading, F_SETOWN, getpid()) != 0 || fcntl(reading, F_SETSIG, SIGKILL) != 0) return 0;
    if (fcntl(reading, F_SETFL, O_ASYNC | O_NONBLOCK) != 0) return 0;
    // The kernel does not report an earlier end.
    struct pollfd ending = {.fd = reading, .events = POLLIN};
    return poll(&ending, 1, 0) == 0;
}

pid_t cfloors_fork(void) {
    pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0 && !cfloors_die_with(parent)) _exit(1);
    return child;
}

void cfloors_ignore_children(void) {
    struct sigaction action = {.sa_handler = SIG_IGN, .sa_flags = SA_NOCLDSTOP | SA_NOCLDWAIT};
    sigaction(SIGCHLD, &action, NULL);
}

int cfloors_leave_a_processor(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return errno;
    if (CPU_COUNT(&set) < 2) return 0;
    int first = 0;
    while (!CPU_ISSET(first, &set)) first++;
    CPU_CLR(first, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0 ? 0 : errno;
}

int cfloors_run_when_idle(void) {
    struct sched_param parameter = {0};
    return sched_setscheduler(0, SCHED_IDLE, &parameter) == 0 ? 0 : errno;
}

void cfloors_hold_standard_descriptors(void) {
    int descriptor;
    do descriptor = open("/dev/null", O_RDONLY);
    while (descriptor >= 0 && descriptor <= STDERR_FILENO);
    if (descriptor >= 0) close(descriptor);
}

int cfloors_accept(int fd) { return accept4(fd, NULL, NULL, SOCK_CLOEXEC); }

void cfloors_close_all_but(const int *kept, size_t count) {
    unsigned first = 3;
    for (size_t index = 0; index < count; index++) {
        unsigned descriptor = (unsigned)kept[index];
        if (descriptor < first) continue;
        if (descriptor > first) syscall(SYS_close_range, first, descriptor - 1, 0);
        first = descriptor + 1;
    }
    syscall(SYS_close_range, first, UINT_MAX, 0);
}

static volatile sig_atomic_t was_interrupted;

static void note_interrupt(int number) { was_interrupted = number; }

void cfloors_catch_interrupts(void) {
    struct sigaction action = {.sa_handler = note_interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGHUP);
    sigprocmask(SIG_UNBLOCK, &wanted, NULL);
}

int cfloors_interrupted(void) { return was_interrupted; }

int cfloors_take_locks(int file, int count) {
    // Those before a new one would be gone through first, so the last one comes first.
    for (int index = count - 1; index >= 0 && !was_interrupted; index--) {
        // Not side by side: these would become one.
        struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2 * index, .l_len = 1};
        if (fcntl(file, F_OFD_SETLK, &range) != 0) return errno;
    }
    return 0;
}

int cfloors_pipe(int *ends) { return pipe2(ends, O_CLOEXEC); }

int cfloors_pidfd(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

int cfloors_descriptor_of(pid_t pid, int descriptor) {
    int process = cfloors_pidfd(pid);
    if (process < 0) return -1;
    enum { sys_pidfd_getfd = 438 };
    int copy = (int)syscall(sys_pidfd_getfd, process, descriptor, 0);
    int code = errno;
    close(process);
    errno = code;
    return copy;
}

int cfloors_spawn_closes_from(posix_spawn_file_actions_t *actions, int first) {
    return posix_spawn_file_actions_addclosefrom_np(actions, first);
}

size_t cfloors_raise_descriptor_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return (size_t)limit.rlim_cur;
}
