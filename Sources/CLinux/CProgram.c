#define _GNU_SOURCE
#include "CProgram.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

// A system call that has been interrupted, as far as its registers still have it.
struct pending_call {
    long number;
    long result;
    // All but the first.
    uint64_t arguments[5];
};

static int read_call(pid_t thread, struct pending_call *call) {
#if defined(__x86_64__)
    struct user_regs_struct registers;
    struct iovec all = {&registers, sizeof registers};
    if (ptrace(PTRACE_GETREGSET, thread, (void *)NT_PRSTATUS, &all) != 0) return -1;
    *call = (struct pending_call){
        .number = (long)registers.orig_rax, .result = (long)registers.rax,
        .arguments = {registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9}};
    return 0;
#elif defined(__aarch64__)
    struct user_regs_struct registers;
    struct iovec all = {&registers, sizeof registers};
    if (ptrace(PTRACE_GETREGSET, thread, (void *)NT_PRSTATUS, &all) != 0) return -1;
    *call = (struct pending_call){.number = (long)registers.regs[8], .result = (long)registers.regs[0]};
    for (int index = 0; index < 5; index++) call->arguments[index] = registers.regs[index + 1];
    return 0;
#else
    (void)thread;
    (void)call;
    errno = ENOSYS;
    return -1;
#endif
}

// Stops a thread, which PTRACE_DETACH lets go on.
static int stop(pid_t thread) {
    if (ptrace(PTRACE_SEIZE, thread, 0, 0) != 0) return -1;
    if (ptrace(PTRACE_INTERRUPT, thread, 0, 0) != 0) {
        // It has ended meanwhile, or is about to: there is nothing to detach from.
        return -1;
    }
    // A thread that ends instead stays for its parent to wait for.
    siginfo_t information = {0};
    int waited;
    do {
        waited = waitid(P_PID, (id_t)thread, &information, WSTOPPED | WEXITED | WNOWAIT | __WALL);
    } while (waited != 0 && errno == EINTR);
    if (waited != 0) return -1;
    if (information.si_code != CLD_TRAPPED && information.si_code != CLD_STOPPED) {
        errno = ESRCH;
        return -1;
    }
    waitid(P_PID, (id_t)thread, &information, WSTOPPED | WNOHANG | __WALL);
    return 0;
}

int clinux_pending_result(pid_t thread, long *result) {
    if (stop(thread) != 0) return -1;
    struct pending_call call;
    int status = read_call(thread, &call);
    int code = errno;
    ptrace(PTRACE_DETACH, thread, 0, 0);
    *result = call.result;
    errno = code;
    return status;
}

static int set_timeout(pid_t thread, uint64_t address, int64_t unit, int64_t end) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    int64_t left = end - ((int64_t)time.tv_sec * 1000000000 + time.tv_nsec);
    if (left < 0) left = 0;
    int64_t timeout[] = {left / 1000000000, left % 1000000000 / unit};
    struct iovec local = {timeout, sizeof timeout};
    struct iovec remote = {(void *)(uintptr_t)address, sizeof timeout};
    return process_vm_writev(thread, &local, 1, &remote, 1, 0) == sizeof timeout ? 0 : -1;
}

int clinux_end_wait_at(
    pid_t thread, long number, const uint64_t arguments[6], uint64_t address, int64_t unit, int64_t end
) {
    if (stop(thread) != 0) return -1;
    struct pending_call call;
    int status = read_call(thread, &call);
    if (status == 0) {
        int is_same = call.number == number && memcmp(call.arguments, arguments + 1, sizeof call.arguments) == 0;
        // It goes on, and with what its memory says.
        status = is_same && call.result <= -512 && call.result >= -514 ? set_timeout(thread, address, unit, end) : -1;
        if (!is_same) errno = ESRCH;
    }
    int code = errno;
    ptrace(PTRACE_DETACH, thread, 0, 0);
    errno = code;
    return status;
}

static int64_t read_exec_start(const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file == -1) return -1;
    char text[512];
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0) return -1;
    text[length] = 0;
    const char *line = strstr(text, "se.exec_start");
    const char *colon = line ? strchr(line, ':') : NULL;
    long long milliseconds;
    long nanoseconds;
    if (!colon || sscanf(colon + 1, "%lld.%6ld", &milliseconds, &nanoseconds) != 2) return -1;
    return milliseconds * 1000000 + nanoseconds;
}

int64_t clinux_ran_until(pid_t process, pid_t thread) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/sched", process, thread);
    return read_exec_start(path);
}

int clinux_scheduler_offset(int processor, int64_t *offset) {
    cpu_set_t before, here;
    if (processor < 0 || processor >= CPU_SETSIZE) return -1;
    if (sched_getaffinity(0, sizeof before, &before) != 0) return -1;
    CPU_ZERO(&here);
    CPU_SET(processor, &here);
    if (sched_setaffinity(0, sizeof here, &here) != 0) return -1;
    int found = -1;
    for (int attempt = 0; attempt < 3; attempt++) {
        // It is set when a thread begins to run: the difference is least if little time has passed since.
        struct timespec pause = {0, 1}, now;
        nanosleep(&pause, NULL);
        int64_t start = read_exec_start("/proc/thread-self/sched");
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (start < 0) break;
        int64_t difference = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - start;
        if (found != 0 || difference < *offset) *offset = difference;
        found = 0;
    }
    sched_setaffinity(0, sizeof before, &before);
    return found;
}

static void run(char *const arguments[], const sigset_t *mask, int death_signal, int gate, int report) {
    // The gate shows a parent that has ended before.
    if (death_signal != 0 && prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0) _exit(126);
    char byte;
    ssize_t count;
    do {
        count = read(gate, &byte, 1);
    } while (count == -1 && errno == EINTR);
    if (count != 1) _exit(127);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(arguments[0], arguments);
    int code = errno;
    (void)!write(report, &code, sizeof code);
    _exit(code == ENOENT ? 127 : 126);
}

int clinux_fork_gated(
    char *const arguments[], const sigset_t *mask, int death_signal, struct clinux_gated_child *child
) {
    int gate[2];
    int report[2];
    if (pipe2(gate, O_CLOEXEC) != 0) return -1;
    if (pipe2(report, O_CLOEXEC) != 0) {
        close(gate[0]);
        close(gate[1]);
        return -1;
    }
    child->pid = fork();
    if (child->pid == 0) {
        close(gate[1]);
        run(arguments, mask, death_signal, gate[0], report[1]);
    }
    int code = errno;
    close(gate[0]);
    close(report[1]);
    if (child->pid == -1) {
        close(gate[1]);
        close(report[0]);
        errno = code;
        return -1;
    }
    child->gate = gate[1];
    child->report = report[0];
    return 0;
}

static void guard(char *const arguments[], int leash) {
    // Neither the keys of a terminal nor the end of its session end it.
    setsid();
    signal(SIGHUP, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    if (leash > 3) close_range(3, leash - 1, 0);
    close_range(leash + 1, ~0U, 0);
    // Whatever reads what this process writes need not wait for the guard.
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    char byte;
    ssize_t count;
    do {
        count = read(leash, &byte, 1);
    } while (count == -1 && errno == EINTR);
    if (count != 0) _exit(0);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv("/proc/self/exe", arguments);
    _exit(127);
}

pid_t clinux_fork_guard(char *const arguments[], int *leash) {
    int ends[2];
    // A socket can be written to without SIGPIPE.
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -1;
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        guard(arguments, ends[0]);
    }
    int code = errno;
    close(ends[0]);
    if (pid == -1) {
        close(ends[1]);
        errno = code;
        return -1;
    }
    *leash = ends[1];
    return pid;
}
