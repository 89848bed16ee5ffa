// A process that does nothing with as many threads as its argument says, until its standard input ends.
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

static void *wait_for_ever(void *unused) {
    (void)unused;
    for (;;) pause();
}

int main(int count, char **arguments) {
    int threads = count > 1 ? atoi(arguments[1]) : 1;
    for (int i = 1; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, wait_for_ever, NULL) != 0) return 1;
    }
    char byte;
    while (read(0, &byte, 1) > 0) {}
    return 0;
}
