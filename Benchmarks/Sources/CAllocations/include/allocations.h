#ifndef NIGHTBELL_ALLOCATIONS_H
#define NIGHTBELL_ALLOCATIONS_H

#include <stdint.h>

/// The number of allocations of this process, in all threads: malloc, calloc, realloc and the aligned ones.
uint64_t nightbell_allocations(void);

#endif
