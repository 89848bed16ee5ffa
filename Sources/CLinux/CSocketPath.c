#define _GNU_SOURCE
#include "CSocketPath.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

union address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    struct sockaddr_storage storage;
};

// An IPv4 address in a socket for IPv6 is converted, because its routes are those of IPv4.
static void unmap(union address *address) {
    if (address->any.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&address->six.sin6_addr)) return;
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = address->six.sin6_port};
    memcpy(&four.sin_addr, &address->six.sin6_addr.s6_addr[12], sizeof four.sin_addr);
    address->four = four;
}

static int is_routed(const union address *address) {
    if (address->any.sa_family == AF_INET) {
        in_addr_t number = ntohl(address->four.sin_addr.s_addr);
        return number != INADDR_ANY && number >> 24 != 127 && number >> 16 != 0xA9FE;
    }
    if (address->any.sa_family == AF_INET6) {
        const struct in6_addr *number = &address->six.sin6_addr;
        return !IN6_IS_ADDR_UNSPECIFIED(number) && !IN6_IS_ADDR_LOOPBACK(number)
            && !IN6_IS_ADDR_LINKLOCAL(number);
    }
    return 0;
}

// Whether the socket belongs to the network namespace of this process: addresses and routes of others are not known. Before
// Linux 5.14 the kernel does not tell; then it is assumed.
static int is_of_our_network(int fd) {
    enum { so_netns_cookie = 71 };
    uint64_t theirs = 0, ours = 0;
    socklen_t length = sizeof theirs;
    if (getsockopt(fd, SOL_SOCKET, so_netns_cookie, &theirs, &length) != 0) return 1;
    int own = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (own < 0) return 1;
    length = sizeof ours;
    int is_known = getsockopt(own, SOL_SOCKET, so_netns_cookie, &ours, &length) == 0;
    close(own);
    return !is_known || ours == theirs;
}

static int local_address(int fd, union address *address) {
    socklen_t length = sizeof *address;
    memset(address, 0, sizeof *address);
    if (getsockname(fd, &address->any, &length) != 0) return 0;
    unmap(address);
    return is_routed(address);
}

static int has_same_host(const union address *one, const struct sockaddr *other) {
    if (!other || one->any.sa_family != other->sa_family) return 0;
    if (other->sa_family == AF_INET)
        return one->four.sin_addr.s_addr == ((const struct sockaddr_in *)other)->sin_addr.s_addr;
    return IN6_ARE_ADDR_EQUAL(&one->six.sin6_addr, &((const struct sockaddr_in6 *)other)->sin6_addr);
}

// Whether one interface has both addresses.
static int are_on_one_interface(const union address *one, const union address *other) {
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) return 1;
    int found = 0;
    for (struct ifaddrs *first = all; first && !found; first = first->ifa_next) {
        if (!first->ifa_addr || !has_same_host(one, first->ifa_addr)) continue;
        for (struct ifaddrs *second = all; second && !found; second = second->ifa_next)
            found = has_same_host(other, second->ifa_addr) && strcmp(first->ifa_name, second->ifa_name) == 0;
    }
    freeifaddrs(all);
    return found;
}

int clinux_unsent(int fd) {
    int count = 0;
    return ioctl(fd, SIOCOUTQ, &count) == 0 ? count : -1;
}

int clinux_is_routed(int fd) {
    union address address;
    return local_address(fd, &address) && is_of_our_network(fd);
}

enum clinux_socket_path clinux_socket_path(int fd) {
    union address local, peer, source;
    if (!local_address(fd, &local) || !is_of_our_network(fd)) return CLINUX_PATH_WORKS;
    // A datagram socket that is bound or connected sends nothing.
    int probe = socket(local.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (probe < 0) return CLINUX_PATH_WORKS;
    union address any_port = local;
    if (local.any.sa_family == AF_INET) any_port.four.sin_port = 0;
    else any_port.six.sin6_port = 0;
    int is_gone = bind(probe, &any_port.any, sizeof any_port) != 0 && errno == EADDRNOTAVAIL;
    close(probe);
    if (is_gone) return CLINUX_PATH_ADDRESS_GONE;

    socklen_t length = sizeof peer;
    memset(&peer, 0, sizeof peer);
    if (getpeername(fd, &peer.any, &length) != 0) return CLINUX_PATH_WORKS;
    unmap(&peer);
    if (peer.any.sa_family != local.any.sa_family) return CLINUX_PATH_WORKS;
    probe = socket(local.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (probe < 0) return CLINUX_PATH_WORKS;
    length = local.any.sa_family == AF_INET ? sizeof peer.four : sizeof peer.six;
    int failure = connect(probe, &peer.any, length) == 0 ? 0 : errno;
    length = sizeof source;
    memset(&source, 0, sizeof source);
    int is_known = failure == 0 && getsockname(probe, &source.any, &length) == 0;
    close(probe);
    if (failure == ENETUNREACH || failure == EHOSTUNREACH || failure == EADDRNOTAVAIL) return CLINUX_PATH_UNREACHABLE;
    // A route by another address of the same interface is the way of packets from the socket's address, too.
    if (!is_known || has_same_host(&local, &source.any) || are_on_one_interface(&local, &source))
        return CLINUX_PATH_WORKS;
    return CLINUX_PATH_UNREACHABLE;
}
