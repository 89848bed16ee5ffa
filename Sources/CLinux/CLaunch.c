// The code between clone(2) and execve(2).
//
// The child shares memory with its parent, and all threads of that go on: it is neither copied (which would cost
// page tables) nor waited for (the user that the child becomes could stop it, and its parent with it). So
// nothing here may touch the C library's per-thread data, errno first of all: system calls are made directly.
// Memory is safe from the user that the child becomes: the kernel makes it untraceable when the identity
// changes.
#define _GNU_SOURCE
#include "CLaunch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

// Not even for the entry and exit of functions: the thread sanitizer records them in its state of the thread,
// which is the parent's. For the same reason nothing here may make the compiler call memset.
#if defined(__has_attribute) && __has_attribute(disable_sanitizer_instrumentation)
#define UNINSTRUMENTED \
    __attribute__((no_sanitize("address", "thread", "undefined"), disable_sanitizer_instrumentation))
#else
#define UNINSTRUMENTED __attribute__((no_sanitize("address", "thread", "undefined")))
#endif

#if defined(__x86_64__)
#define CLONE_WAITING 0
UNINSTRUMENTED static long call6(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
#define CLONE_WAITING 0
UNINSTRUMENTED static long call6(long number, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory", "cc");
    return x0;
}
#else
// The C library's method sets errno, so the calling thread waits meanwhile.
#define CLONE_WAITING CLONE_VFORK
static long call6(long number, long a, long b, long c, long d, long e, long f) {
    long result = syscall(number, a, b, c, d, e, f);
    return result == -1 ? -errno : result;
}
#endif

#define CALL(number, a, b, c, d) call6(number, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

// The kernel's layout, which is not that of the C library.
struct kernel_sigaction {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

UNINSTRUMENTED static void fail(const struct clinux_launch *launch, uint32_t stage, long result) {
    struct clinux_launch_failure failure = {stage, (int32_t)-result};
    CALL(SYS_write, launch->report, &failure, sizeof failure, 0);
    for (;;) CALL(SYS_exit, 127, 0, 0, 0);
}

UNINSTRUMENTED static void reset_signals(void) {
    static const struct kernel_sigaction standard;
    for (int number = 1; number <= 64; number++) {
        if (number == SIGKILL || number == SIGSTOP) continue;
        CALL(SYS_rt_sigaction, number, &standard, 0, 8);
    }
}

// Makes a table of descriptors of its own, from the lowest ones of the shared table.
UNINSTRUMENTED static void copy_descriptors(struct clinux_launch *launch) {
    long result = CALL(SYS_close_range, launch->descriptor_end, ~0u, CLOSE_RANGE_UNSHARE, 0);
    if (result < 0) result = CALL(SYS_unshare, CLONE_FILES, 0, 0, 0);
    if (result < 0) fail(launch, CLINUX_LAUNCH_DESCRIPTORS, result);
    __atomic_store_n(&launch->has_copied, 1, __ATOMIC_RELEASE);
}

// Puts descriptors where the program expects them, the report behind them, and closes all others: those that
// are not close-on-exec must not leak, and the rest would count against the limit that is set next.
UNINSTRUMENTED static void place_descriptors(struct clinux_launch *launch, int *copies) {
    int report = 3 + (int)launch->descriptor_count;
    // Descriptors in the target range of others are moved aside first.
    for (uint32_t index = 0; index < launch->descriptor_count; index++) {
        copies[index] = launch->descriptors[index];
        if (copies[index] > report) continue;
        long copy = CALL(SYS_fcntl, copies[index], F_DUPFD_CLOEXEC, report + 1, 0);
        if (copy < 0) fail(launch, CLINUX_LAUNCH_DESCRIPTORS, copy);
        copies[index] = (int)copy;
    }
    if (launch->report != report) {
        long copy = CALL(SYS_dup3, launch->report, report, O_CLOEXEC, 0);
        if (copy < 0) fail(launch, CLINUX_LAUNCH_DESCRIPTORS, copy);
        launch->report = report;
    }
    for (uint32_t index = 0; index < launch->descriptor_count; index++) {
        long result = CALL(SYS_dup3, copies[index], 3 + (int)index, 0, 0);
        if (result < 0) fail(launch, CLINUX_LAUNCH_DESCRIPTORS, result);
    }
    CALL(SYS_close_range, report + 1, ~0u, 0, 0);

    long nothing = CALL(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0);
    if (nothing < 0) fail(launch, CLINUX_LAUNCH_DESCRIPTORS, nothing);
    for (int standard = 0; standard <= 2; standard++) {
        long result = CALL(SYS_dup3, nothing, standard, 0, 0);
        // The same number already: it only has to stay open.
        if (result == -EINVAL) result = CALL(SYS_fcntl, standard, F_SETFD, 0, 0);
        if (result < 0) fail(launch, CLINUX_LAUNCH_DESCRIPTORS, result);
    }
}

// A supervisor with a raised priority does not pass it on; one with a lowered priority does. (The kernel
// returns 20 for 0, and more for a higher priority.)
UNINSTRUMENTED static void reset_priority(void) {
    if (CALL(SYS_getpriority, PRIO_PROCESS, 0, 0, 0) > 20) CALL(SYS_setpriority, PRIO_PROCESS, 0, 0, 0);
}

UNINSTRUMENTED static void set_limits(const struct clinux_launch *launch) {
    for (uint32_t index = 0; index < launch->limit_count; index++) {
        const struct clinux_launch_limit *limit = &launch->limits[index];
        uint64_t values[2] = {limit->soft, limit->hard};
        long result = CALL(SYS_prlimit64, 0, limit->resource, values, 0);
        if (result < 0) fail(launch, CLINUX_LAUNCH_LIMITS, result);
    }
}

// Groups first, because they cannot be changed after the user. Privileges that a supervisor has beyond its
// uid are not inherited by any program but root's.
UNINSTRUMENTED static void change_identity(const struct clinux_launch *launch) {
    CALL(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0);
    if (launch->changes_identity) {
        long result = CALL(SYS_setgroups, launch->group_count, launch->groups, 0, 0);
        if (result == 0) result = CALL(SYS_setresgid, launch->group, launch->group, launch->group, 0);
        if (result == 0) result = CALL(SYS_setresuid, launch->user, launch->user, launch->user, 0);
        if (result < 0) fail(launch, CLINUX_LAUNCH_IDENTITY, result);
    }
    if (launch->user != 0) {
        struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
        static const struct __user_cap_data_struct none[2];
        long result = CALL(SYS_capset, &header, none, 0, 0);
        if (result < 0) fail(launch, CLINUX_LAUNCH_IDENTITY, result);
    }
}

UNINSTRUMENTED static void open_output(const struct clinux_launch *launch) {
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY | O_CLOEXEC | O_NONBLOCK;
    long output = CALL(SYS_openat, AT_FDCWD, launch->output, flags, 0640);
    for (int standard = 1; output >= 0 && standard <= 2; standard++) {
        long result = CALL(SYS_dup3, output, standard, 0, 0);
        if (result < 0) output = result;
    }
    if (output < 0) fail(launch, CLINUX_LAUNCH_OUTPUT, output);
}

UNINSTRUMENTED static void write_process(char *text) {
    char digits[CLINUX_PROCESS_TEXT];
    unsigned count = 0;
    for (unsigned long rest = (unsigned long)CALL(SYS_getpid, 0, 0, 0, 0); rest > 0; rest /= 10) {
        digits[count++] = (char)('0' + rest % 10);
    }
    while (count > 0) *text++ = digits[--count];
    *text = 0;
}

UNINSTRUMENTED static int run(void *argument) {
    struct clinux_launch *launch = argument;
    // The caller left room for these below the descriptors themselves.
    int copies[launch->descriptor_count + 1];
    if (launch->descriptor_end > 0) copy_descriptors(launch);
    reset_signals();
    CALL(SYS_setsid, 0, 0, 0, 0);
    place_descriptors(launch, copies);
    CALL(SYS_umask, launch->file_mode_mask, 0, 0, 0);
    reset_priority();
    set_limits(launch);
    change_identity(launch);
    long result = CALL(SYS_chdir, launch->directory, 0, 0, 0);
    if (result < 0) fail(launch, CLINUX_LAUNCH_DIRECTORY, result);
    if (launch->output) open_output(launch);
    for (int index = 0; index < 2; index++) {
        if (launch->process_texts[index]) write_process(launch->process_texts[index]);
    }
    // The parent may have to record this process first. A parent that is gone sends nothing.
    char word;
    if (CALL(SYS_read, launch->report, &word, 1, 0) != 1) {
        for (;;) CALL(SYS_exit, 127, 0, 0, 0);
    }
    uint64_t no_signals = 0;
    CALL(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, 0, 8);
    long failure = -ENOENT;
    for (const char *const *program = launch->programs; *program; program++) {
        result = CALL(SYS_execve, *program, launch->arguments, launch->environment, 0);
        // A file that exists but may not be run is a better report than a missing one.
        if (result != -ENOENT && result != -ENOTDIR) failure = result;
        if (result != -ENOENT && result != -ENOTDIR && result != -EACCES) break;
    }
    fail(launch, CLINUX_LAUNCH_PROGRAM, failure);
    return 127;
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
// The thread sanitizer treats clone(2) as a fork and resets its state of the calling thread in the child,
// which is the parent's, as they share memory. It does not intercept this name of the same function. The
// child needs no sanitizer until execve: it only makes system calls, directly.
extern int __clone(int (*function)(void *), void *stack, int flags, void *argument, ...);
#define clone __clone
#endif
#endif

pid_t clinux_launch(struct clinux_launch *launch, void *stack, size_t stack_size, int *pidfd) {
    // The parent's signal handlers must not run in the child.
    sigset_t all, before;
    sigfillset(&all);
    int blocked = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (blocked != 0) {
        errno = blocked;
        return -1;
    }
    int flags = CLONE_VM | CLONE_PIDFD | CLONE_WAITING | SIGCHLD;
    if (launch->descriptor_end > 0) flags |= CLONE_FILES;
    pid_t process = clone(run, (char *)stack + stack_size, flags, launch, pidfd, (void *)0, (void *)0);
    int code = errno;
    pthread_sigmask(SIG_SETMASK, &before, (void *)0);
    errno = code;
    return process;
}

int clinux_launch_has_copied(const struct clinux_launch *launch) {
    return __atomic_load_n(&launch->has_copied, __ATOMIC_ACQUIRE) != 0;
}

int clinux_duplicate_over(int descriptor, int number) { return dup3(descriptor, number, O_CLOEXEC); }
