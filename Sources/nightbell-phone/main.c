// The load tester's phone: see CPhone.h.
//
//   nightbell-phone PORT INDEX    a phone; PHONE_HELLO in its environment is its first message, in hexadecimal digits;
//                                 it ends with the process PHONE_PARENT, if that is set
//   nightbell-phone floor         answers the call in descriptor 3, and ends
#include "CPhone.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **arguments) {
    // First, because this path is measured.
    if (getenv("LISTEN_FDS") || count == 2) {
        int error = cphone_answer_call(3);
        if (count == 2) return error == 0 ? 0 : 1;
    }
    if (count != 3) return 64;
    const char *parent = getenv("PHONE_PARENT");
    if (parent) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        // The parent may have ended before that.
        if (getppid() != atoi(parent)) return 1;
    }
    const char *digits = getenv("PHONE_HELLO");
    static char hello[4096];
    unsigned length = 0;
    for (; digits && digits[2 * length] && length < sizeof hello; length++) {
        unsigned byte;
        if (sscanf(digits + 2 * length, "%2x", &byte) != 1) return 64;
        hello[length] = (char)byte;
    }
    int error = cphone_run(
        digits ? hello : NULL, length, (unsigned short)atoi(arguments[1]), strtoull(arguments[2], NULL, 10));
    fprintf(stderr, "phone %s: %s (%d)\n", arguments[2], error > 0 ? strerror(error) : "refused", error);
    return 1;
}
