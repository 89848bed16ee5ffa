// Types of the core in the public API: an importer of this module needs no other module for them.
@_exported public import struct NightbellCore.OffloadCounters
@_exported public import struct NightbellCore.ParkingCounters
@_exported public import struct NightbellCore.ParkingReasons
