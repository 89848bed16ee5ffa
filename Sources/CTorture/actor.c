#define _GNU_SOURCE
#include "actor.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

const char *endpoint;
uint32_t program;
const char *own_path = "/proc/self/exe";

const struct kind kinds[] = {
    {"level", play_level, ctorture_callable},
    {"edge", play_edge, ctorture_callable},
    {"oneshot", play_oneshot, ctorture_callable},
    {"exclusive", play_exclusive, ctorture_callable},
    {"shared", play_shared, ctorture_callable},
    {"nested", play_nested, ctorture_callable},
    {"poll", play_poll, ctorture_callable},
    {"select", play_select, ctorture_callable},
    {"read", play_read, ctorture_callable},
    {"recvmsg", play_recvmsg, ctorture_callable},
    {"accept", play_accept, ctorture_callable},
    {"flood", play_flood, ctorture_flooding},
    {"halves", play_halves, ctorture_halved},
    {"ppoll-timer", play_ppoll_timer, ctorture_callable},
    {"select-timer", play_select_timer, ctorture_callable},
    {"epoll-timer", play_epoll_timer, ctorture_callable},
    {"condition-timer", play_condition_timer, ctorture_timed},
    {"sigwait-timer", play_sigwait_timer, ctorture_timed},
    {"sleep", play_sleep, ctorture_timed},
    {"timerfd", play_timerfd, ctorture_callable},
    {"timerfd-read", play_timerfd_read, ctorture_timed},
    {"condition", play_condition, ctorture_callable},
    {"eventfd", play_eventfd, ctorture_callable},
    {"threads", play_threads, ctorture_callable},
    {"unshared", play_unshared, ctorture_callable},
    {"fork", play_fork, ctorture_callable},
    {"vfork", play_vfork, ctorture_callable},
    {"stopped", play_stopped, ctorture_callable},
    {"mortal", play_mortal, ctorture_mortal},
    {"exec", play_exec, ctorture_callable},
    {"sigwait", play_sigwait, ctorture_callable},
    {"signalfd", play_signalfd, ctorture_callable},
    {"handler", play_handler, ctorture_callable},
    {"duplicate", play_duplicate, ctorture_callable},
    {"reuse", play_reuse, ctorture_callable},
    {"many", play_many, ctorture_callable},
    {"many-polled", play_many_polled, ctorture_callable},
};

int ctorture_kind_count(void) { return sizeof kinds / sizeof *kinds; }

const char *ctorture_kind_name(int kind) {
    return kind >= 0 && kind < ctorture_kind_count() ? kinds[kind].name : NULL;
}

enum ctorture_role ctorture_kind_role(int kind) { return kinds[kind].role; }

// MARK: Lines

int say_hello(int kind, uint64_t reach) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(endpoint) >= sizeof address.sun_path) _exit(64);
    strcpy(address.sun_path, endpoint);
    int line = socket(AF_UNIX, SOCK_STREAM, 0);
    if (line < 0) _exit(70);
    // The queue may be full for a moment.
    while (connect(line, (struct sockaddr *)&address, sizeof address) != 0) {
        if (errno != EAGAIN && errno != EINTR) _exit(0);
        rest(MILLISECOND);
    }
    struct ctorture_message hello = {
        .type = ctorture_hello, .kind = (uint32_t)kind, .process = getpid(), .program = program, .number = reach};
    if (send(line, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) _exit(0);
    return line;
}

static void say(int line, int kind, enum ctorture_type type, int32_t value, uint64_t number) {
    struct ctorture_message message = {
        .type = type, .kind = (uint32_t)kind, .value = value, .process = getpid(), .program = program,
        .number = number};
    // Short enough not to be cut by another thread's.
    for (;;) {
        ssize_t sent = send(line, &message, sizeof message, MSG_NOSIGNAL);
        if (sent == sizeof message) return;
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) {
            rest(MILLISECOND);
            continue;
        }
        _exit(0);
    }
}

void answer(int line, int kind, uint64_t number) { say(line, kind, ctorture_answer, 0, number); }

void notice(int line, int kind, int value) {
    fprintf(stderr, "program %u, %s: %s (%d)\n", program, kinds[kind].name, value > 0 ? strerror(value) : "line", value);
    say(line, kind, ctorture_notice, value, 0);
}

void report(int line, int kind, int64_t due) {
    say(line, kind, ctorture_late, (int32_t)((now() - due) / 1000), 0);
}

void report_cut(int line, int kind) { say(line, kind, ctorture_cut, 0, 0); }

int take(struct actor *actor, uint64_t *number) {
    struct ctorture_message call;
    size_t length = 0;
    while (length < sizeof call) {
        ssize_t count = read(actor->line, (char *)&call + length, sizeof call - length);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno == EAGAIN && length == 0) return 0;
        if (count < 0 && errno == EAGAIN) continue;
        // The checker has ended.
        if (count <= 0) _exit(0);
        length += (size_t)count;
    }
    *number = call.number;
    return 1;
}

void take_all(struct actor *actor, int descriptor) {
    struct actor other = *actor;
    other.line = descriptor;
    uint64_t number;
    while (take(&other, &number)) answer(actor->line, actor->kind, number);
}

// MARK: Time

int64_t now_of(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int64_t random_between(struct actor *actor, int64_t first, int64_t last) {
    return first + (int64_t)((double)rand_r(&actor->seed) / RAND_MAX * (double)(last - first));
}

struct timespec timespec_of(int64_t nanoseconds) {
    return (struct timespec){nanoseconds / 1000000000, nanoseconds % 1000000000};
}

void rest(int64_t nanoseconds) {
    struct timespec left = timespec_of(nanoseconds);
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {}
}

void set_blocking(int descriptor, int blocks) {
    int flags = fcntl(descriptor, F_GETFL);
    fcntl(descriptor, F_SETFL, blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

// MARK: Start

struct start {
    void (*play)(struct actor *);
    struct actor actor;
};

static void *run(void *argument) {
    struct start start = *(struct start *)argument;
    free(argument);
    start.play(&start.actor);
    return NULL;
}

void begin(void (*play)(struct actor *), const struct actor *actor) {
    struct start *start = malloc(sizeof *start);
    pthread_t thread;
    pthread_attr_t attributes;
    *start = (struct start){play, *actor};
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 128 * 1024);
    int code = pthread_create(&thread, &attributes, run, start);
    if (code != 0) {
        fprintf(stderr, "pthread_create: %s\n", strerror(code));
        _exit(71);
    }
    pthread_attr_destroy(&attributes);
}

static int kind_named(const char *name) {
    for (int kind = 0; kind < ctorture_kind_count(); kind++)
        if (strcmp(kinds[kind].name, name) == 0) return kind;
    return -1;
}

int ctorture_main(int count, char **arguments) {
    if (count == 5 && strcmp(arguments[1], "answer") == 0) return answer_and_end(arguments + 2);
    if (count == 6 && strcmp(arguments[1], "exec") == 0) return play_after_exec(arguments + 2);
    if (count < 5) {
        fprintf(stderr, "usage: nightbell-torture ENDPOINT PROGRAM SEED KIND…\n");
        return 64;
    }
    endpoint = arguments[1];
    program = (uint32_t)atoi(arguments[2]);
    unsigned seed = (unsigned)atoi(arguments[3]);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    // Those that wait for signals wait for them; nothing else is interrupted.
    sigset_t waited;
    sigemptyset(&waited);
    for (int signal = 0; signal < 3; signal++) sigaddset(&waited, (int[]){SIGUSR1, SIGUSR2, SIGHUP}[signal]);
    sigprocmask(SIG_BLOCK, &waited, NULL);
    for (int index = 4; index < count; index++) {
        int kind = kind_named(arguments[index]);
        if (kind < 0) {
            fprintf(stderr, "there is no kind %s\n", arguments[index]);
            return 64;
        }
        struct actor actor = {.kind = kind, .seed = seed + (unsigned)index, .line = -1};
        begin(kinds[kind].play, &actor);
    }
    // Every other program has lost its first thread.
    if (program % 2 == 1) pthread_exit(NULL);
    for (;;) pause();
}
