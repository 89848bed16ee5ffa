// The kernel's messages about links, addresses and routes.
#include "CNetwork.h"

#include <errno.h>
#include <linux/if_addr.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int cmachine_network_open(void) {
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (fd == -1) return -1;
    struct sockaddr_nl address = {
        .nl_family = AF_NETLINK,
        .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE |
                     RTMGRP_IPV6_ROUTE,
    };
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    int code = errno;
    close(fd);
    errno = code;
    return -1;
}

int cmachine_network_request(int fd, int subject) {
    struct {
        struct nlmsghdr header;
        struct rtgenmsg body;
    } request = {
        .header = {
            .nlmsg_len = sizeof request,
            .nlmsg_type = subject == CMACHINE_NETWORK_LINK      ? RTM_GETLINK
                          : subject == CMACHINE_NETWORK_ADDRESS ? RTM_GETADDR
                                                              : RTM_GETROUTE,
            .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
            .nlmsg_seq = 1,
        },
        .body = {.rtgen_family = AF_UNSPEC},
    };
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    ssize_t sent =
        sendto(fd, &request, sizeof request, MSG_DONTWAIT, (struct sockaddr *)&kernel, sizeof kernel);
    return sent == sizeof request ? 0 : -1;
}

ssize_t cmachine_network_receive(int fd, void *buffer, size_t size) {
    struct sockaddr_nl sender = {0};
    socklen_t length = sizeof sender;
    ssize_t count = recvfrom(fd, buffer, size, MSG_DONTWAIT, (struct sockaddr *)&sender, &length);
    if (count == -1) return -1;
    return length == sizeof sender && sender.nl_pid == 0 ? count : 0;
}

// Copies an address of four or sixteen bytes; anything else is ignored.
static void copy_address(struct cmachine_network_message *message, const struct rtattr *attribute) {
    size_t length = RTA_PAYLOAD(attribute);
    if (length != 4 && length != 16) return;
    memcpy(message->address, RTA_DATA(attribute), length);
    message->address_length = (uint32_t)length;
}

static uint32_t number(const struct rtattr *attribute) {
    uint32_t value = 0;
    if (RTA_PAYLOAD(attribute) >= sizeof value) memcpy(&value, RTA_DATA(attribute), sizeof value);
    return value;
}

// FNV-1a.
static uint32_t fingerprint(const struct rtattr *attribute) {
    const unsigned char *bytes = RTA_DATA(attribute);
    uint32_t hash = 2166136261u;
    for (size_t index = 0; index < RTA_PAYLOAD(attribute); index++) hash = (hash ^ bytes[index]) * 16777619u;
    return hash;
}

static int read_link(const struct nlmsghdr *header, struct cmachine_network_message *message) {
    if (header->nlmsg_len < NLMSG_LENGTH(sizeof(struct ifinfomsg))) return 0;
    const struct ifinfomsg *body = NLMSG_DATA(header);
    // Messages of a bridge about its ports have another family, and no state.
    if (body->ifi_family != AF_UNSPEC) return 0;
    message->subject = CMACHINE_NETWORK_LINK;
    message->link = (uint32_t)body->ifi_index;
    message->is_usable = (body->ifi_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING) &&
                         !(body->ifi_flags & IFF_LOOPBACK);
    int length = (int)IFLA_PAYLOAD(header);
    for (const struct rtattr *attribute = IFLA_RTA(body); RTA_OK(attribute, length);
         attribute = RTA_NEXT(attribute, length)) {
        if (attribute->rta_type != IFLA_IFNAME) continue;
        size_t count = RTA_PAYLOAD(attribute);
        if (count >= sizeof message->name) count = sizeof message->name - 1;
        memcpy(message->name, RTA_DATA(attribute), count);
    }
    return 1;
}

static int read_address(const struct nlmsghdr *header, struct cmachine_network_message *message) {
    if (header->nlmsg_len < NLMSG_LENGTH(sizeof(struct ifaddrmsg))) return 0;
    const struct ifaddrmsg *body = NLMSG_DATA(header);
    if (body->ifa_family != AF_INET && body->ifa_family != AF_INET6) return 0;
    message->subject = CMACHINE_NETWORK_ADDRESS;
    message->family = body->ifa_family;
    message->scope = body->ifa_scope;
    message->link = body->ifa_index;
    message->prefix_length = body->ifa_prefixlen;
    uint32_t flags = body->ifa_flags;
    int length = (int)IFA_PAYLOAD(header);
    int has_local = 0;
    for (const struct rtattr *attribute = IFA_RTA(body); RTA_OK(attribute, length);
         attribute = RTA_NEXT(attribute, length)) {
        switch (attribute->rta_type) {
        case IFA_LOCAL:
            // Of a point-to-point link, IFA_ADDRESS is the other end.
            copy_address(message, attribute);
            has_local = 1;
            break;
        case IFA_ADDRESS:
            if (!has_local) copy_address(message, attribute);
            break;
        case IFA_FLAGS: flags = number(attribute); break;
        }
    }
    int is_tentative = flags & IFA_F_TENTATIVE && !(flags & IFA_F_OPTIMISTIC);
    message->is_usable = !is_tentative && !(flags & IFA_F_DADFAILED);
    return message->address_length > 0;
}

static int read_route(const struct nlmsghdr *header, struct cmachine_network_message *message) {
    if (header->nlmsg_len < NLMSG_LENGTH(sizeof(struct rtmsg))) return 0;
    const struct rtmsg *body = NLMSG_DATA(header);
    if (body->rtm_family != AF_INET && body->rtm_family != AF_INET6) return 0;
    message->subject = CMACHINE_NETWORK_ROUTE;
    message->family = body->rtm_family;
    message->scope = body->rtm_scope;
    message->is_usable = body->rtm_type == RTN_UNICAST;
    message->prefix_length = body->rtm_dst_len;
    message->table = body->rtm_table;
    message->is_cached = body->rtm_flags & RTM_F_CLONED ? 1 : 0;
    int length = (int)RTM_PAYLOAD(header);
    for (const struct rtattr *attribute = RTM_RTA(body); RTA_OK(attribute, length);
         attribute = RTA_NEXT(attribute, length)) {
        switch (attribute->rta_type) {
        case RTA_GATEWAY: copy_address(message, attribute); break;
        case RTA_OIF: message->link = number(attribute); break;
        case RTA_PRIORITY: message->metric = number(attribute); break;
        case RTA_TABLE: message->table = number(attribute); break;
        case RTA_VIA:
        case RTA_MULTIPATH:
        case RTA_NH_ID: message->next_hops = fingerprint(attribute); break;
        }
    }
    // Routes to the machine's own addresses accompany these.
    return message->table != RT_TABLE_LOCAL;
}

static int read_message(const struct nlmsghdr *header, struct cmachine_network_message *message) {
    // A notification may have the number of another process's request, which has caused it.
    message->is_answer = header->nlmsg_flags & NLM_F_MULTI ? 1 : 0;
    switch (header->nlmsg_type) {
    case RTM_DELLINK: message->is_removal = 1; // fallthrough
    case RTM_NEWLINK: return read_link(header, message);
    case RTM_DELADDR: message->is_removal = 1; // fallthrough
    case RTM_NEWADDR: return read_address(header, message);
    case RTM_DELROUTE: message->is_removal = 1; // fallthrough
    case RTM_NEWROUTE: return read_route(header, message);
    case NLMSG_DONE: message->subject = CMACHINE_NETWORK_DONE; return 1;
    case NLMSG_ERROR:
        message->subject = CMACHINE_NETWORK_FAILURE;
        if (header->nlmsg_len >= NLMSG_LENGTH(sizeof(struct nlmsgerr)))
            message->code = -((const struct nlmsgerr *)NLMSG_DATA(header))->error;
        return 1;
    default: return 0;
    }
}

int cmachine_network_next(
    const void *buffer, size_t length, size_t *offset, struct cmachine_network_message *message) {
    while (*offset < length) {
        const struct nlmsghdr *header = (const void *)((const char *)buffer + *offset);
        size_t rest = length - *offset;
        if (rest < sizeof *header || header->nlmsg_len < sizeof *header || header->nlmsg_len > rest) return 0;
        *offset += NLMSG_ALIGN(header->nlmsg_len);
        *message = (struct cmachine_network_message){0};
        message->is_interrupted = header->nlmsg_flags & NLM_F_DUMP_INTR ? 1 : 0;
        if (read_message(header, message)) return 1;
    }
    return 0;
}
