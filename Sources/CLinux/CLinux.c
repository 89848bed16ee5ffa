// Everything is inline in the header; a target needs one file to compile.
#include "CLinux.h"
