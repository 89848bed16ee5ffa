// The kernel's view of a connection beside its readiness: whether its peer has read the bytes sent, and whether it can
// still work after the network has changed.
#pragma once

// The bytes sent on a socket and not read at its other end, or not acknowledged; with the kernel's overhead. -1 and errno.
int clinux_unsent(int fd);

enum clinux_socket_path {
    CLINUX_PATH_WORKS,
    // No interface has the socket's local address any more.
    CLINUX_PATH_ADDRESS_GONE,
    // There is no route to the peer, or it leaves by an interface that has not the socket's local address.
    CLINUX_PATH_UNREACHABLE,
};

// Whether the socket is bound to an Internet address that the machine can lose: a specific one, and no loopback or
// link-local one. It belongs to the network namespace of this process. 1 or 0.
int clinux_is_routed(int fd);

// Inspects a socket for which clinux_is_routed is 1, without touching it and without sending anything.
enum clinux_socket_path clinux_socket_path(int fd);
