// The least that a softphone can be: it keeps one registration, sleeps as a dormant client, and answers calls.
//
// It speaks the control protocol by hand, so that what is measured is the supervisor and not a library: between its
// start and the first byte that it reads there is nothing.
#pragma once

#include <stdint.h>

// What a caller sends, and the answer to it.
struct cphone_call {
    uint64_t number;
};

struct cphone_answer {
    uint64_t number;
    // When the call was read (CLOCK_MONOTONIC, ns).
    int64_t read_at;
    // By which process.
    int64_t process;
};

// What a phone says of itself when it registers.
struct cphone_registration {
    uint64_t index;
};

// A process with sockets handed to it from descriptor 3 on: answers what waits in the first. Returns 0 if there was a
// call, else errno, or -1 at its end.
int cphone_answer_call(int socket);

// The life of a phone until it is ended by the supervisor. `hello`: the whole first message; none: one with nothing but
// the identifier. Returns errno, or a number below 0 for what it cannot make sense of.
int cphone_live(const char *hello, unsigned hello_length, uint16_t port, uint64_t index);
