// What the public API mentions of the core: an importer of this module needs no other for it.
@_exported public import struct NightbellCore.OffloadCounters
@_exported public import struct NightbellCore.ParkingCounters
@_exported public import struct NightbellCore.ParkingReasons
