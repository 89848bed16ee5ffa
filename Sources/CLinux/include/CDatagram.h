// Source and destination of a datagram, so that the answer is sent from the same address.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

struct clinux_route {
    struct sockaddr_storage sender;
    socklen_t sender_length;
    // The address family of the destination; AF_UNSPEC: it is unknown, or cannot be a source.
    int family;
    // In network order; an IPv4 address is in the first four bytes.
    unsigned char destination[16];
};

// Turns the reporting of destinations on or off: returns the earlier value, or -1 if there is no such option.
// It also applies to datagrams that are queued already.
int clinux_name_destinations(int fd, int on);

// Copies the next datagram without consuming it. Returns its length, which may exceed `size`; -1 and errno.
ssize_t clinux_peek_datagram(int fd, void *buffer, size_t size, struct clinux_route *route);

// Sends to the source of the datagram, from its destination; neither blocks nor raises a signal.
ssize_t clinux_answer_datagram(int fd, const void *bytes, size_t count, const struct clinux_route *route);
