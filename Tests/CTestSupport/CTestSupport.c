#define _GNU_SOURCE
#include "CTestSupport.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <signal.h>
#include <unistd.h>

int ctest_become(uid_t uid) {
    // The library's functions would change all threads; the system calls change one.
    if (syscall(SYS_setgroups, 0, NULL) != 0) return -1;
    if (syscall(SYS_setresgid, uid, uid, uid) != 0) return -1;
    return (int)syscall(SYS_setresuid, uid, uid, uid);
}

static void *wait_for_ever(void *unused) {
    (void)unused;
    for (;;) pause();
}

pid_t ctest_fork_threads(int count) {
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid != 0) return pid;
    // Nobody would end it if the test crashed.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    for (int i = 1; i < count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, wait_for_ever, NULL) != 0) _exit(1);
    }
    wait_for_ever(NULL);
    _exit(0);
}
