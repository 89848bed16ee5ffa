#define _GNU_SOURCE
#include "CDatagram.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

int clinux_name_destinations(int fd, int on) {
    int domain = 0, former = 0;
    socklen_t length = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0) return -1;
    if (domain != AF_INET && domain != AF_INET6) return -1;
    int level = domain == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
    int name = domain == AF_INET ? IP_PKTINFO : IPV6_RECVPKTINFO;
    length = sizeof former;
    if (getsockopt(fd, level, name, &former, &length) != 0) return -1;
    if (former != on && setsockopt(fd, level, name, &on, sizeof on) != 0) return -1;
    return former;
}

static void note_destination(struct cmsghdr *header, struct clinux_route *route) {
    if (header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_PKTINFO) {
        struct in_pktinfo info;
        memcpy(&info, CMSG_DATA(header), sizeof info);
        in_addr_t address = ntohl(info.ipi_addr.s_addr);
        // Group and broadcast addresses cannot be source addresses.
        if (IN_MULTICAST(address) || address == INADDR_BROADCAST || address == INADDR_ANY) return;
        route->family = AF_INET;
        memcpy(route->destination, &info.ipi_addr, sizeof info.ipi_addr);
    } else if (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_PKTINFO) {
        struct in6_pktinfo info;
        memcpy(&info, CMSG_DATA(header), sizeof info);
        if (IN6_IS_ADDR_MULTICAST(&info.ipi6_addr) || IN6_IS_ADDR_UNSPECIFIED(&info.ipi6_addr)) return;
        route->family = AF_INET6;
        memcpy(route->destination, &info.ipi6_addr, sizeof info.ipi6_addr);
    }
}

ssize_t clinux_peek_datagram(int fd, void *buffer, size_t size, struct clinux_route *route) {
    struct iovec vector = {.iov_base = buffer, .iov_len = size};
    // Room for both kinds and some unrequested ones; the rest is left out.
    _Alignas(struct cmsghdr) char control[512];
    struct msghdr message = {
        .msg_name = &route->sender,
        .msg_namelen = sizeof route->sender,
        .msg_iov = &vector,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof control,
    };
    ssize_t count = recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
    if (count < 0) return count;
    route->sender_length = message.msg_namelen;
    route->family = AF_UNSPEC;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header))
        note_destination(header, route);
    return count;
}

static ssize_t send_from(int fd, const void *bytes, size_t count, const struct clinux_route *route, int family) {
    struct iovec vector = {.iov_base = (void *)bytes, .iov_len = count};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct in6_pktinfo))] = {0};
    struct msghdr message = {
        .msg_name = route->sender_length ? (void *)&route->sender : NULL,
        .msg_namelen = route->sender_length,
        .msg_iov = &vector,
        .msg_iovlen = 1,
    };
    if (family == AF_INET) {
        struct in_pktinfo info = {0};
        memcpy(&info.ipi_spec_dst, route->destination, sizeof info.ipi_spec_dst);
        struct cmsghdr *header = (struct cmsghdr *)control;
        *header = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof info), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO};
        memcpy(CMSG_DATA(header), &info, sizeof info);
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(sizeof info);
    } else if (family == AF_INET6) {
        struct in6_pktinfo info = {0};
        memcpy(&info.ipi6_addr, route->destination, sizeof info.ipi6_addr);
        struct cmsghdr *header = (struct cmsghdr *)control;
        *header = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof info), .cmsg_level = IPPROTO_IPV6, .cmsg_type = IPV6_PKTINFO};
        memcpy(CMSG_DATA(header), &info, sizeof info);
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(sizeof info);
    }
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t clinux_answer_datagram(int fd, const void *bytes, size_t count, const struct clinux_route *route) {
    ssize_t sent = send_from(fd, bytes, count, route, route->family);
    // A network's broadcast address, or one that is gone, cannot be the source of the answer.
    if (sent < 0 && route->family != AF_UNSPEC && errno != EAGAIN && errno != ENOBUFS)
        sent = send_from(fd, bytes, count, route, AF_UNSPEC);
    return sent;
}
