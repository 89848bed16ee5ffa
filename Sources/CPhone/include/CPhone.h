// A minimal softphone: it keeps one registration, sleeps as a dormant client, and answers calls.
//
// It speaks the control protocol by hand, so that the measurement is of the supervisor and not of a library:
// no initialization precedes the first byte that it reads.
#pragma once

#include <stdint.h>

// A call, and the phone's answer.
struct cphone_call {
    uint64_t number;
};

struct cphone_answer {
    uint64_t number;
    // When the call was read (CLOCK_MONOTONIC, ns).
    int64_t read_at;
    // The process ID of the reader.
    int64_t process;
};

// The registration of a phone.
struct cphone_registration {
    uint64_t index;
};

// Answers the call that waits in a socket. Returns 0 if there was a call, else errno, or -1 at its end.
int cphone_answer_call(int socket);

// Runs a phone until the supervisor ends it. `hello`: the complete first message; null: a hello with the
// identifier only. Returns errno, or a number below 0 for an unexpected message.
int cphone_run(const char *hello, unsigned hello_length, uint16_t port, uint64_t index);
