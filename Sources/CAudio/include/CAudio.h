// Observes the audio streams of one PipeWire server.
#pragma once

#include <stddef.h>
#include <sys/types.h>

typedef struct caudio_observer caudio_observer;

struct caudio_stream {
    // The process that is connected to PipeWire, as the kernel says; 0: unknown.
    pid_t pid;
    // The process that the stream says it belongs to; 0: none. Servers of other protocols connect for their clients.
    pid_t claimed_pid;
};

// Connects to the server with this socket; NULL and errno.
caudio_observer *caudio_open(const char *socket_path);

void caudio_close(caudio_observer *observer);

// Readable when there is something to process.
int caudio_descriptor(const caudio_observer *observer);

enum caudio_result {
    // The streams may have changed.
    CAUDIO_CHANGED = 1,
    // The server is gone.
    CAUDIO_LOST = 2,
};

// Does what is to be done, without waiting; a set of caudio_result.
int caudio_process(caudio_observer *observer);

// Whether the server has told of all streams that there were at first.
int caudio_is_complete(const caudio_observer *observer);

// Streams that run and are not muted: their number, `capacity` at the most.
size_t caudio_streams(const caudio_observer *observer, struct caudio_stream *streams, size_t capacity);
