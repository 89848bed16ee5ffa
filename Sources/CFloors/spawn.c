#define _GNU_SOURCE
#include "CFloors.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { max_events = 64 };

int cfloors_spawner(const int *sockets, size_t count, const char *program, int stop) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0) return errno;
    for (size_t index = 0; index < count; index++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = index};
        if (epoll_ctl(set, EPOLL_CTL_ADD, sockets[index], &event) != 0) return errno;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = UINT64_MAX};
    if (epoll_ctl(set, EPOLL_CTL_ADD, stop, &event) != 0) return errno;

    posix_spawnattr_t attributes;
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    char *arguments[] = {(char *)program, "floor", NULL};
    char *environment[] = {NULL};
    struct epoll_event events[max_events];
    for (;;) {
        int ready = epoll_wait(set, events, max_events, -1);
        if (ready < 0) return errno;
        for (int index = 0; index < ready; index++) {
            if (events[index].data.u64 == UINT64_MAX) return 0;
            posix_spawn_file_actions_t actions;
            posix_spawn_file_actions_init(&actions);
            posix_spawn_file_actions_adddup2(&actions, sockets[events[index].data.u64], 3);
            pid_t process;
            int error = posix_spawn(&process, program, &actions, &attributes, arguments, environment);
            posix_spawn_file_actions_destroy(&actions);
            if (error) return error;
        }
    }
}
