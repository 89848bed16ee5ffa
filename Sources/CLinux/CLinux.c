// Almost everything is inline in the header.
#include "CLinux.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
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

static pthread_mutex_t choosing = PTHREAD_MUTEX_INITIALIZER;
static int chosen;

static void do_nothing(int number) {
    (void)number;
}

// Whether the signal has no effect. In a program of another maker it may have got one since it was chosen.
static int is_without_effect(int number) {
    struct sigaction action;
    return number != 0 && sigaction(number, NULL, &action) == 0 && action.sa_handler == do_nothing;
}

// Gives a signal its handler, if it has no use. One that the thread blocks may be meant for a descriptor or be
// waited for; but some threads block all.
static int choose(int takes_blocked, const sigset_t *blocked) {
    for (int number = SIGRTMAX; number > SIGRTMIN; number--) {
        struct sigaction action;
        if (!takes_blocked && sigismember(blocked, number) != 0) continue;
        if (sigaction(number, NULL, &action) != 0 || action.sa_handler != SIG_DFL) continue;
        memset(&action, 0, sizeof action);
        action.sa_handler = do_nothing;
        action.sa_flags = SA_RESTART;
        if (sigaction(number, &action, NULL) == 0) return number;
    }
    return 0;
}

// A signal without effect; 0: there is none.
static int interruption(void) {
    pthread_mutex_lock(&choosing);
    if (!is_without_effect(chosen)) {
        sigset_t blocked;
        sigemptyset(&blocked);
        pthread_sigmask(SIG_BLOCK, NULL, &blocked);
        chosen = choose(0, &blocked);
        if (chosen == 0) chosen = choose(1, &blocked);
    }
    int number = chosen;
    pthread_mutex_unlock(&choosing);
    return number;
}

int clinux_interrupt_each_millisecond(timer_t *timer) {
    int number = interruption();
    if (number == 0) return EBUSY;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    // The headers of some C libraries have no name for the thread.
    union {
        struct sigevent event;
        struct {
            union sigval value;
            int signal, notify, thread;
        } parts;
    } event;
    memset(&event, 0, sizeof event);
    enum { notify_thread = 4 };
    event.parts.signal = number;
    event.parts.notify = notify_thread;
    event.parts.thread = (int)syscall(SYS_gettid);
    if (timer_create(CLOCK_MONOTONIC, &event.event, timer) != 0) return errno;
    const struct timespec millisecond = {.tv_nsec = 1000000};
    const struct itimerspec each = {.it_interval = millisecond, .it_value = millisecond};
    if (timer_settime(*timer, 0, &each, NULL) == 0) return 0;
    int code = errno;
    timer_delete(*timer);
    return code;
}

struct interruption {
    timer_t timer;
    sigset_t mask;
    int is_begun;
};

static void begin(struct interruption *interruption) {
    pthread_sigmask(SIG_BLOCK, NULL, &interruption->mask);
    interruption->is_begun = clinux_interrupt_each_millisecond(&interruption->timer) == 0;
}

static void end(const struct interruption *interruption) {
    int code = errno;
    if (interruption->is_begun) timer_delete(interruption->timer);
    pthread_sigmask(SIG_SETMASK, &interruption->mask, NULL);
    errno = code;
}

int clinux_close_promptly(int fd) {
    struct interruption interruption;
    begin(&interruption);
    int result = close(fd);
    end(&interruption);
    return result;
}

int clinux_discard_packets(int fd, int most) {
    // The kernel closes the descriptors when the call returns: all that wait then are ended by one signal.
    enum { at_once = 256 };
    char byte;
    struct iovec vector = {.iov_base = &byte, .iov_len = sizeof byte};
    // Room for the sender and for no descriptor, written over by each packet.
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(3 * sizeof(int))];
    } sender;
    // `struct mmsghdr`, which needs _GNU_SOURCE.
    struct {
        struct msghdr header;
        unsigned length;
    } packets[at_once];
    while (most > 0) {
        int count = most < at_once ? most : at_once;
        for (int index = 0; index < count; index++) {
            packets[index].header = (struct msghdr){
                .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &sender, .msg_controllen = sizeof sender};
        }
        int received = (int)syscall(SYS_recvmmsg, fd, packets, count, MSG_DONTWAIT, (void *)0);
        if (received < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
        if (received <= 0 || packets[received - 1].header.msg_controllen == 0) return 1;
        most -= received;
    }
    return 0;
}

int clinux_discard_packets_promptly(int fd, int most) {
    struct interruption interruption;
    begin(&interruption);
    int is_empty = clinux_discard_packets(fd, most);
    end(&interruption);
    return is_empty;
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
