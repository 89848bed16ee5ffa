// The kernel's messages about links, addresses and routes (rtnetlink(7)), as plain structures.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum cmachine_network_subject {
    CMACHINE_NETWORK_LINK = 1,
    CMACHINE_NETWORK_ADDRESS,
    CMACHINE_NETWORK_ROUTE,
    // The answer to a request is complete.
    CMACHINE_NETWORK_DONE,
    // The request failed; `code` is the errno.
    CMACHINE_NETWORK_FAILURE,
};

struct cmachine_network_message {
    int subject;
    int is_removal;
    int is_answer;  // to a request, not a notification
    // The kernel has changed something while it answered: the answer may be inconsistent.
    int is_interrupted;
    int code;
    // The link, that of the address, or that of the route's first gateway; 0: none.
    uint32_t link;
    // A link: it is up and has a carrier. An address: it can be used. A route: it is one of unicast.
    int is_usable;
    char name[16];  // of a link
    int family;     // AF_INET or AF_INET6
    uint8_t scope;
    // The address; of a route, the gateway. `address_length` 0: there is none.
    unsigned char address[16];
    uint32_t address_length;
    // Of a route.
    uint8_t prefix_length;  // of the destination; 0: a default route
    uint32_t table;
    uint32_t metric;
    uint32_t next_hops;     // a fingerprint of several gateways or of the object that names them
    int is_cached;
};

// A socket that is notified of all changes: a descriptor, non-blocking and close-on-exec; or -1 and errno.
int cmachine_network_open(void);

// Asks for everything of one subject. 0, or -1 and errno.
int cmachine_network_request(int fd, int subject);

// Receives messages of the kernel into the buffer: their length. 0: they came from another process and were
// discarded. -1 and errno; ENOBUFS: the kernel has dropped some.
ssize_t cmachine_network_receive(int fd, void *buffer, size_t size);

// The message at the offset, which moves to the next one: 1; 0: there is no other. Messages about other subjects are
// skipped.
int cmachine_network_next(
    const void *buffer, size_t length, size_t *offset, struct cmachine_network_message *message);
