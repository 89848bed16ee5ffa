// A program that knows nothing of Nightbell and does what is legal and unusual: for `nightbell-load torture`.
//
// It is a crowd of actors, threads and processes, each with a line to the checker. The checker calls, in one way or
// another, and the actor answers on its line; it also reports how late its timers were, and all that should not be.
#pragma once

#include <stdint.h>

enum ctorture_type {
    ctorture_hello,   // number: how it is called: 0: by its line, a signal's number, or 1000 + a port
    ctorture_call,
    ctorture_answer,
    ctorture_late,    // value: microseconds between the time at which a timer was due and now
    ctorture_cut,     // a read or a write has returned with a part, as it would after SIGSTOP and SIGCONT
    ctorture_notice,  // value: an errno, or the number of a line of the program's source if it is negative
};

struct ctorture_message {
    uint32_t type;
    uint32_t kind;
    int32_t value;
    int32_t process;
    uint32_t program;
    uint32_t unused;
    uint64_t number;
};

enum ctorture_role {
    ctorture_callable,  // answers calls
    ctorture_timed,     // is never called: its timers end by themselves
    ctorture_mortal,    // is killed while it sleeps, and says hello again
    ctorture_halved,    // gets its calls in two halves
    ctorture_flooding,  // writes until it is read, and then answers
};

int ctorture_kind_count(void);
// NULL: there is no such kind.
const char *ctorture_kind_name(int kind);
enum ctorture_role ctorture_kind_role(int kind);

// The bytes that an actor that floods writes before an answer, in one call.
#define CTORTURE_FLOOD 400000

// The program: ENDPOINT PROGRAM SEED KIND…, kinds by their names. Returns its exit code.
int ctorture_main(int count, char **arguments);
