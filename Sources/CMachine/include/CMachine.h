// The parts of nightbell-monitor that are written in C: system interfaces of macros and structures.
#pragma once

#include "CConfinement.h"
#include "CNetwork.h"
