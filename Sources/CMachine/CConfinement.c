// Giving up rights.
#define _GNU_SOURCE
#include "CConfinement.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

int cmachine_become_user(uid_t user, gid_t group) {
    if (setgroups(0, NULL) != 0 || setresgid(group, group, group) != 0 || setresuid(user, user, user) != 0)
        return -1;
    // No way back, whatever the kernel's security modules permit.
    if (user != 0 && (setuid(0) == 0 || geteuid() != user)) {
        errno = EPERM;
        return -1;
    }
    return 0;
}

int cmachine_end_with_parent(void) { return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); }

int cmachine_confine(void) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}
