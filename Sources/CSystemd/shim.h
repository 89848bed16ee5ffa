// D-Bus.
#include <systemd/sd-bus.h>
