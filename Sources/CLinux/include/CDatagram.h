// Where a datagram came from and where it was sent to, so that it can be answered from there.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

struct clinux_route {
    struct sockaddr_storage sender;
    socklen_t sender_length;
    // Of which family the destination is; AF_UNSPEC: it is not known, or nothing can be sent from it.
    int family;
    // In network order; of an IPv4 address the first four bytes.
    unsigned char destination[16];
};

// Has the kernel name destinations, or not: what was set before, or -1 where nothing of the kind can be set. The
// destinations of datagrams that are there already are named as well.
int clinux_name_destinations(int fd, int on);

// Copies the next datagram without taking it. How long it is, which may be more than there was room for; -1 and errno.
ssize_t clinux_peek_datagram(int fd, void *buffer, size_t size, struct clinux_route *route);

// Sends to where the datagram came from, from where it was sent to; neither blocks nor raises a signal.
ssize_t clinux_answer_datagram(int fd, const void *bytes, size_t count, const struct clinux_route *route);
