// Processes that come and go, and signals.
#define _GNU_SOURCE
#include "actor.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int status_of(struct actor *actor, pid_t child, int options) {
    int status = 0;
    while (waitpid(child, &status, options) < 0) {
        if (errno == EINTR) continue;
        NOTICE(actor);
        return -1;
    }
    return status;
}

void play_fork(struct actor *actor) {
    actor->line = say_hello(actor->kind, 0);
    uint64_t number;
    while (take(actor, &number)) {
        int64_t delay = number % 3 ? random_between(actor, 0, 150) * MILLISECOND : 0;
        pid_t child = (pid_t)MUST(actor, fork());
        if (child == 0) {
            rest(delay);
            answer(actor->line, actor->kind, number);
            _exit(3);
        }
        int status = status_of(actor, child, 0);
        NOTICE_IF(actor, !WIFEXITED(status) || WEXITSTATUS(status) != 3);
    }
}

void play_vfork(struct actor *actor) {
    actor->line = say_hello(actor->kind, 0);
    uint64_t number;
    while (take(actor, &number)) {
        char line[16], call[32], kind[16];
        snprintf(line, sizeof line, "%d", actor->line);
        snprintf(call, sizeof call, "%llu", (unsigned long long)number);
        snprintf(kind, sizeof kind, "%d", actor->kind);
        struct timespec delay = timespec_of(random_between(actor, 0, 60) * MILLISECOND);
        char *arguments[] = {"nightbell-torture", "answer", line, kind, call, NULL};
        pid_t child = vfork();
        if (child == 0) {
            // The thread of the parent waits meanwhile, and its other threads run.
            nanosleep(&delay, NULL);
            execv(own_path, arguments);
            _exit(127);
        }
        MUST(actor, child);
        int status = status_of(actor, child, 0);
        NOTICE_IF(actor, !WIFEXITED(status) || WEXITSTATUS(status) != 4);
    }
}

int answer_and_end(char **arguments) {
    answer(atoi(arguments[0]), atoi(arguments[1]), strtoull(arguments[2], NULL, 10));
    return 4;
}

// A child that is stopped, as by a debugger or a shell.
void play_stopped(struct actor *actor) {
    actor->line = say_hello(actor->kind, 0);
    uint64_t number;
    while (take(actor, &number)) {
        pid_t child = (pid_t)MUST(actor, fork());
        if (child == 0) {
            raise(SIGSTOP);
            answer(actor->line, actor->kind, number);
            _exit(5);
        }
        int status = status_of(actor, child, WUNTRACED);
        NOTICE_IF(actor, !WIFSTOPPED(status));
        rest(random_between(actor, 0, 200) * MILLISECOND);
        kill(child, SIGCONT);
        status = status_of(actor, child, 0);
        NOTICE_IF(actor, !WIFEXITED(status) || WEXITSTATUS(status) != 5);
    }
}

// A child that is killed from outside, even while it is frozen, and its parent, which has another one then.
void play_mortal(struct actor *actor) {
    // The line of the parent only reports.
    int parent_line = say_hello(actor->kind, UINT64_MAX);
    for (;;) {
        pid_t child = fork();
        if (child == 0) {
            close(parent_line);
            actor->line = say_hello(actor->kind, 0);
            uint64_t number;
            while (take(actor, &number)) answer(actor->line, actor->kind, number);
        }
        actor->line = parent_line;
        MUST(actor, child);
        if (random_between(actor, 0, 100) < 50) {
            struct pollfd entry = {(int)syscall(SYS_pidfd_open, child, 0), POLLIN, 0};
            while (poll(&entry, 1, -1) != 1) {}
            close(entry.fd);
        }
        int status = status_of(actor, child, 0);
        NOTICE_IF(actor, !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL);
    }
}

// MARK: A process that replaces its program again and again

static void become(const char *path, int line, int kind) {
    char own_line[16], own_kind[16], own_program[16];
    snprintf(own_line, sizeof own_line, "%d", line);
    snprintf(own_kind, sizeof own_kind, "%d", kind);
    snprintf(own_program, sizeof own_program, "%u", program);
    char *arguments[] = {"nightbell-torture", "exec", (char *)endpoint, own_program, own_line, own_kind, NULL};
    execv(path, arguments);
    _exit(127);
}

void play_exec(struct actor *actor) {
    actor->line = say_hello(actor->kind, UINT64_MAX);
    pid_t child = (pid_t)MUST(actor, fork());
    if (child == 0) become(own_path, -1, actor->kind);
    status_of(actor, child, 0);
    NOTICE_IF(actor, 1);
}

int play_after_exec(char **arguments) {
    endpoint = arguments[0];
    program = (uint32_t)atoi(arguments[1]);
    struct actor actor = {.line = atoi(arguments[2]), .kind = atoi(arguments[3]), .seed = 1};
    if (actor.line < 0) actor.line = say_hello(actor.kind, 0);
    uint64_t number;
    take(&actor, &number);
    answer(actor.line, actor.kind, number);
    become(own_path, actor.line, actor.kind);
    return 1;
}

// MARK: Signals

void play_sigwait(struct actor *actor) {
    actor->line = say_hello(actor->kind, SIGUSR1);
    sigset_t waited;
    sigemptyset(&waited);
    sigaddset(&waited, SIGUSR1);
    for (;;) {
        int signal = 0;
        int code = sigwait(&waited, &signal);
        NOTICE_IF(actor, code != 0 || signal != SIGUSR1);
        answer(actor->line, actor->kind, 0);
    }
}

void play_signalfd(struct actor *actor) {
    actor->line = say_hello(actor->kind, SIGUSR2);
    sigset_t waited;
    sigemptyset(&waited);
    sigaddset(&waited, SIGUSR2);
    int signals = (int)MUST(actor, signalfd(-1, &waited, SFD_NONBLOCK));
    int set = (int)MUST(actor, epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN};
    MUST(actor, epoll_ctl(set, EPOLL_CTL_ADD, signals, &event));
    for (;;) {
        if (MUST(actor, epoll_wait(set, &event, 1, -1)) != 1) continue;
        struct signalfd_siginfo information;
        if (MUST(actor, read(signals, &information, sizeof information)) == sizeof information)
            answer(actor->line, actor->kind, 0);
    }
}

static int handled[2];

static void handle(int signal) {
    int code = errno;
    (void)!write(handled[1], &(char){(char)signal}, 1);
    errno = code;
}

void play_handler(struct actor *actor) {
    actor->line = say_hello(actor->kind, SIGHUP);
    MUST(actor, pipe(handled));
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    MUST(actor, sigaction(SIGHUP, &action, NULL));
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, SIGHUP);
    pthread_sigmask(SIG_UNBLOCK, &own, NULL);
    char byte;
    while (MUST(actor, read(handled[0], &byte, 1)) == 1) answer(actor->line, actor->kind, 0);
}
