// Giving up rights, for programs that talk to others.
#pragma once

#include <sys/types.h>

// Becomes this user for ever, with one group and no supplementary ones. 0, or -1 and errno.
int cmachine_become_user(uid_t user, gid_t group);

// Has the kernel kill this process when the thread that started it ends. 0, or -1 and errno.
int cmachine_end_with_parent(void);

// From here on no program that is run can gain rights, and no other process of this user can read the memory or take
// descriptors. 0, or -1 and errno.
int cmachine_confine(void);
