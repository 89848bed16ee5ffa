#define _GNU_SOURCE
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include "CTestSupport.h"

#include <fcntl.h>
#include <malloc.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

int ctest_become(uid_t uid) {
    // The library's functions would change all threads; the system calls change one.
    if (syscall(SYS_setgroups, 0, NULL) != 0) return -1;
    if (syscall(SYS_setresgid, uid, uid, uid) != 0) return -1;
    return (int)syscall(SYS_setresuid, uid, uid, uid);
}

int ctest_mute_file_system(const char *directory, int *root) {
    int server = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (server < 0) return -1;
    char options[64];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", server);
    if (mount("nightbell-test", directory, "fuse", MS_NOSUID | MS_NODEV, options) == 0) {
        *root = open(directory, O_PATH | O_CLOEXEC);
        // The descriptor keeps it; no other process is to enter it.
        umount2(directory, MNT_DETACH);
        if (*root >= 0) return server;
    }
    close(server);
    return -1;
}

int ctest_limit_descriptors(pid_t pid, rlim_t limit) {
    struct rlimit values;
    if (prlimit(pid, RLIMIT_NOFILE, NULL, &values) != 0) return -1;
    values.rlim_cur = limit;
    return prlimit(pid, RLIMIT_NOFILE, &values, NULL);
}

int ctest_own_network(void) { return unshare(CLONE_NEWNET); }

int ctest_enter_network(const char *path) {
    int namespace = open(path, O_RDONLY | O_CLOEXEC);
    if (namespace < 0) return -1;
    int entered = setns(namespace, CLONE_NEWNET);
    close(namespace);
    return entered;
}

int ctest_run(const char *command) { return system(command); }

int ctest_set_loopback(int socket, int up) {
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = up ? IFF_UP : 0};
    return ioctl(socket, SIOCSIFFLAGS, &request);
}

size_t ctest_heap_in_use(void) {
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}
