// Only CAudio uses it: its headers consist of inline functions and macros.
#include <pipewire/pipewire.h>
