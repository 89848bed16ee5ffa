// libevent's headers use fd_set without including its definition.
#include <sys/select.h>

#include <event2/event.h>
#include <event2/event_struct.h>
