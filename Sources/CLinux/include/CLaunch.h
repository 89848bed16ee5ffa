// Starting a program without a copy of the caller, and without waiting for it.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct clinux_launch_limit {
    uint32_t resource;
    uint64_t soft;
    uint64_t hard;
};

// The child's parameters. The child reads them while the caller goes on: none of them may be changed or freed
// before `report` says that the launch is over.
struct clinux_launch {
    const char *const *programs;  // paths to try in this order; ended by NULL
    char *const *arguments;
    char *const *environment;
    char *process_texts[2];  // where in the environment the child writes its own pid, in decimal; or NULL
    const char *directory;
    const char *output;  // a file to append standard output and error to, or NULL
    uint32_t file_mode_mask;
    const int *descriptors;  // they become 3, 4, 5, …
    uint32_t descriptor_count;
    const struct clinux_launch_limit *limits;
    uint32_t limit_count;
    int changes_identity;
    uint32_t user;
    uint32_t group;
    const uint32_t *groups;
    uint32_t group_count;
    // A stream socket, close-on-exec. The program is run only after a byte has arrived, and never if the
    // stream ends. The child sends a clinux_launch_failure, or nothing but the end when the program runs.
    int report;
    // Not 0: the child shares the table of descriptors until it has copied those below this number, among them
    // the report and the ones above. To copy thousands and to close them again takes longer than all the rest.
    uint32_t descriptor_end;
    uint32_t has_copied;  // set by the child: see clinux_launch_has_copied
};

enum clinux_launch_stage {
    CLINUX_LAUNCH_DESCRIPTORS = 1,
    CLINUX_LAUNCH_LIMITS,
    CLINUX_LAUNCH_IDENTITY,
    CLINUX_LAUNCH_DIRECTORY,
    CLINUX_LAUNCH_OUTPUT,
    CLINUX_LAUNCH_PROGRAM,
};

struct clinux_launch_failure {
    uint32_t stage;
    int32_t code;  // errno
};

// Room for a process ID in decimal, and a zero byte.
#define CLINUX_PROCESS_TEXT 16

// Starts a child with a stack of its own that shares this process's memory until it runs the program. Returns its pid
// and a pidfd, or -1 and errno.
pid_t clinux_launch(struct clinux_launch *launch, void *stack, size_t stack_size, int *pidfd);

// Whether the child has a table of descriptors of its own.
int clinux_launch_has_copied(const struct clinux_launch *launch);

// dup3(2) with O_CLOEXEC.
int clinux_duplicate_over(int descriptor, int number);
