// Types of the supervisor and the core in the public API: an importer of this module needs no other import.
@_exported public import struct NightbellCore.OffloadCounters
@_exported public import struct NightbellCore.ParkingCounters
@_exported public import struct NightbellCore.ParkingReasons
@_exported public import struct NightbellParking.EmbeddedCounters
@_exported public import struct NightbellParking.EmbeddedError
@_exported public import class NightbellParking.EmbeddedSupervisor
@_exported public import struct NightbellParking.ParkingProfile
@_exported public import struct NightbellParking.ParkingToken
