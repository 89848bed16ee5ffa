#include "CTestSupport.h"

#include <grp.h>
#include <unistd.h>

pid_t ctest_fork_as(uid_t uid, int (*body)(void *), void *argument) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    if (setgroups(0, 0) != 0 || setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0) _exit(127);
    _exit(body(argument));
}
