// Device events.
#include <libudev.h>
