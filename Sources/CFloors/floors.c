#define _GNU_SOURCE
#include "CFloors.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    // The kernel's limit of descriptors in one packet.
    max_descriptors = 253,
    max_events = 256,
};

void cfloors_sleeper(int fd, struct cfloors_slot *slot) {
    cfloors_set_stage(slot, cfloors_waiting);
    while (cfloors_receive(fd, slot, 0) >= 0) {}
    cfloors_set_stage(slot, cfloors_failed);
}

int cfloors_waker(const struct cfloors_target *targets, size_t count, int stop) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0) return errno;
    for (size_t index = 0; index < count; index++) {
        // Edge-triggered: each packet is reported once, and nothing needs to be armed again.
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = index};
        if (epoll_ctl(set, EPOLL_CTL_ADD, targets[index].socket, &event) != 0) return errno;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = UINT64_MAX};
    if (epoll_ctl(set, EPOLL_CTL_ADD, stop, &event) != 0) return errno;

    struct epoll_event events[max_events];
    for (;;) {
        if (cfloors_interrupted()) return EINTR;
        int ready = epoll_wait(set, events, max_events, -1);
        // A signal asks it to end.
        if (ready < 0) return errno;
        for (int index = 0; index < ready; index++) {
            if (events[index].data.u64 == UINT64_MAX) return 0;
            const struct cfloors_target *target = &targets[events[index].data.u64];
            if (target->freezer >= 0) {
                if (write(target->freezer, "0", 1) != 1) return errno;
            } else if (target->process >= 0) {
                if (syscall(SYS_pidfd_send_signal, target->process, SIGCONT, NULL, 0) != 0) return errno;
            }
        }
    }
}

// Closes all watched descriptors up to the number `last`. Other processes have the same files open, so that a
// watch would outlive the descriptor.
static void close_watched(int set, int last) {
    for (int descriptor = 0; descriptor <= last; descriptor++) {
        if (epoll_ctl(set, EPOLL_CTL_DEL, descriptor, NULL) == 0) close(descriptor);
    }
}

int cfloors_adopter(int socket, size_t expected, int64_t *done_at) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0) return errno;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(max_descriptors * sizeof(int))];
    } control;
    char content[4096];
    size_t adopted = 0;
    int last = -1, is_done = 0;
    for (;;) {
        struct iovec vector = {.iov_base = content, .iov_len = sizeof content};
        struct msghdr message = {
            .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        ssize_t length = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
        if (length < 0 && errno == EINTR) continue;
        if (length < 0) return errno;
        if (length == 0) return 0;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        if (message.msg_flags & MSG_CTRUNC) return EMFILE;
        if (!header || header->cmsg_type != SCM_RIGHTS) {
            close_watched(set, last);
            last = -1;
            adopted = 0;
            is_done = 0;
            __atomic_store_n(done_at, 0, __ATOMIC_RELEASE);
            continue;
        }
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        int descriptors[max_descriptors];
        memcpy(descriptors, CMSG_DATA(header), count * sizeof(int));
        for (size_t index = 0; index < count; index++) {
            struct epoll_event event = {
                .events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, .data.fd = descriptors[index]};
            if (epoll_ctl(set, EPOLL_CTL_ADD, descriptors[index], &event) != 0) return errno;
            if (descriptors[index] > last) last = descriptors[index];
        }
        adopted += count;
        if (adopted >= expected && !is_done) {
            __atomic_store_n(done_at, cfloors_now(), __ATOMIC_RELEASE);
            is_done = 1;
        }
    }
}

// Reads pending answers without waiting. False: the other end is closed.
static int drain(int socket, size_t *answers) {
    char content[65536];
    for (;;) {
        ssize_t length = recv(socket, content, sizeof content, MSG_DONTWAIT);
        if (length < 0) return errno == EAGAIN || errno == EINTR;
        if (length == 0) return 0;
        *answers += 1;
    }
}

int cfloors_hand_over(
    int socket, const int *descriptors, size_t total, size_t batch, const void *bytes, size_t length,
    size_t *answers) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(max_descriptors * sizeof(int))];
    } control;
    if (batch == 0 || batch > max_descriptors || total % batch != 0) return EINVAL;
    for (size_t sent = 0; sent < total;) {
        struct iovec vector = {.iov_base = (void *)bytes, .iov_len = length};
        struct msghdr message = {
            .msg_iov = &vector,
            .msg_iovlen = 1,
            .msg_control = &control,
            .msg_controllen = CMSG_SPACE(batch * sizeof(int))};
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(batch * sizeof(int));
        memcpy(CMSG_DATA(&control.header), descriptors + sent, batch * sizeof(int));
        if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) {
            sent += batch;
        } else if (errno == EAGAIN || errno == ETOOMANYREFS) {
            // The queue is full, or too many descriptors are in flight.
            short events = answers ? POLLOUT | POLLIN : POLLOUT;
            struct pollfd waiting = {.fd = socket, .events = events};
            poll(&waiting, 1, errno == EAGAIN ? 10000 : 1);
            if (answers && !drain(socket, answers)) return ECONNRESET;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

int cfloors_await_answers(int socket, size_t *answers, size_t expected) {
    while (*answers < expected) {
        struct pollfd waiting = {.fd = socket, .events = POLLIN};
        int ready = poll(&waiting, 1, 10000);
        if (ready == 0) return ETIMEDOUT;
        if (ready > 0 && !drain(socket, answers)) return ECONNRESET;
    }
    return 0;
}
