// A program that knows nothing of Nightbell: it connects, says which number it has, and sends back what it hears, by epoll,
// until the other end closes. For `nightbell-load unmodified`.
//
//   nightbell-echo ENDPOINT NUMBER    ENDPOINT: a port of 127.0.0.1, or the path of a Unix socket
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int connect_to(const char *endpoint) {
    if (strchr(endpoint, '/')) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        if (strlen(endpoint) >= sizeof address.sun_path) return -1;
        strcpy(address.sun_path, endpoint);
        int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
        // The queue may be full for a moment: as many programs start at a time.
        while (connect(descriptor, (struct sockaddr *)&address, sizeof address) != 0) {
            if (errno != EAGAIN && errno != EINTR) return -1;
            usleep(1000);
        }
        return descriptor;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(endpoint))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int descriptor = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (connect(descriptor, (struct sockaddr *)&address, sizeof address) != 0) return -1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return descriptor;
}

static int write_all(int descriptor, const char *bytes, size_t count) {
    while (count > 0) {
        ssize_t written = send(descriptor, bytes, count, MSG_NOSIGNAL);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return 0;
        bytes += written;
        count -= (size_t)written;
    }
    return 1;
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: nightbell-echo ENDPOINT NUMBER\n");
        return 64;
    }
    int peer = connect_to(arguments[1]);
    uint64_t number = strtoull(arguments[2], NULL, 10);
    if (peer < 0 || !write_all(peer, (const char *)&number, sizeof number)) {
        perror(arguments[1]);
        return 1;
    }
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, peer, &event) != 0) return 1;
    for (;;) {
        int ready = epoll_wait(set, &event, 1, -1);
        if (ready < 0 && errno == EINTR) continue;
        if (ready < 0) return 1;
        char bytes[4096];
        ssize_t length = recv(peer, bytes, sizeof bytes, 0);
        if (length < 0 && errno == EINTR) continue;
        if (length <= 0) return length == 0 ? 0 : 1;
        if (!write_all(peer, bytes, (size_t)length)) return 1;
    }
}
