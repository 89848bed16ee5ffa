// Almost everything is inline in the header.
#include "CLinux.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <sys/vfs.h>

// Its constants would be ambiguous with those of sys/stat.h if the header showed both to Swift.
#include <linux/stat.h>

int clinux_file_type(int fd) {
    enum { at_empty_path = 0x1000, at_statx_dont_sync = 0x4000 };
    struct statx status;
    long result = syscall(SYS_statx, fd, "", at_empty_path | at_statx_dont_sync, STATX_TYPE, &status);
    return result == 0 ? (status.stx_mode & S_IFMT) : -1;
}

int clinux_open_file_of_kernel(const char *path, int flags) {
    enum { path_only = 010000000, proc_magic = 0x9fa0, cgroup2_magic = 0x63677270 };
    int place = open(path, path_only | O_CLOEXEC);
    if (place < 0) return -1;
    struct statfs system;
    int result = fstatfs(place, &system);
    if (result == 0 && system.f_type != proc_magic && system.f_type != cgroup2_magic) {
        errno = EMEDIUMTYPE;
        result = -1;
    }
    if (result == 0) {
        char same[32];
        snprintf(same, sizeof same, "/proc/self/fd/%d", place);
        result = open(same, flags | O_CLOEXEC);
    }
    int code = errno;
    close(place);
    errno = code;
    return result;
}

// From linux/fcntl.h and linux/memfd.h, which are incomplete in older distributions.
enum {
    memfd_close_on_exec = 0x1,
    memfd_allow_sealing = 0x2,
    add_seals = 1033,
    get_seals = 1034,
    seal_seal = 0x1,
    seal_shrink = 0x2,
    seal_grow = 0x4,
    seal_future_write = 0x10,
};

int clinux_sealable_memory(const char *name) {
    return (int)syscall(SYS_memfd_create, name, memfd_close_on_exec | memfd_allow_sealing);
}

int clinux_seal_for_readers(int fd) {
    return fcntl(fd, add_seals, seal_seal | seal_shrink | seal_grow | seal_future_write);
}

int clinux_is_sealed_page(int fd, size_t size) {
    struct stat status;
    int seals = fcntl(fd, get_seals);
    return seals >= 0 && (seals & seal_shrink) && fstat(fd, &status) == 0 && (size_t)status.st_size == size;
}

void clinux_keep_little_memory(void) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 16 * 1024);
    mallopt(M_ARENA_MAX, 1);
#endif
}

void clinux_release_large_blocks_at_once(void) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 128 * 1024);
#endif
}

void clinux_release_free_memory(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
