// Almost everything is inline in the header.
#include "CLinux.h"

#include <malloc.h>

// Its constants would be ambiguous with those of sys/stat.h if the header showed both to Swift.
#include <linux/stat.h>

int clinux_file_type(int fd) {
    enum { at_empty_path = 0x1000, at_statx_dont_sync = 0x4000 };
    struct statx status;
    long result = syscall(SYS_statx, fd, "", at_empty_path | at_statx_dont_sync, STATX_TYPE, &status);
    return result == 0 ? (status.stx_mode & S_IFMT) : -1;
}

void clinux_release_free_memory(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
