/// The token in the loop's events: names the object they are about, in 64 bits.
struct WatchToken: Sendable {
    enum Kind: UInt64 {
        case listener
        case timer
        case signal
        case connectionReadable
        case connectionWritable
        case processExit
        case socket
        case launchExit
        case memoryPressure
        case keeper
        /// A socket with a profile. Its owner is not in the token: the socket does not thaw it early.
        case offloadedSocket
        /// The reload signal.
        case reload
        /// The configuration has been read again.
        case reloaded
        /// The connection to the monitor of the machine.
        case monitor
        case monitorExit
        /// A transfer process, or the socket of one: see `TransferToken`.
        case transfers
    }

    /// The part of a generation that fits. It only has to tell apart events of the same or the next turn.
    private static let generationMask: UInt64 = 0xffff
    /// No process has that many descriptors (`fs.nr_open` is 2^20 by default).
    private static let slotMask: UInt64 = 0xff_ffff
    private static let ownerMask: UInt64 = 0xf_ffff

    /// With `Kind.timer`: the time of day was set.
    static let clock: UInt64 = 1
    /// With `Kind.timer`: the time zone may have changed.
    static let zone: UInt64 = 2
    /// With `Kind.reloaded`: the file locks of a client have been counted.
    static let locks: UInt64 = 1
    /// With `Kind.reloaded`: a process has ended that was a declared client and had lost its connection.
    static let departed: UInt64 = 2

    let rawValue: UInt64

    init(rawValue: UInt64) {
        self.rawValue = rawValue
    }

    /// - Parameters:
    ///   - id: a slot with its generation in the upper half, as in tokens and connection keys.
    ///   - owner: the slot of the client that a socket belongs to.
    init(_ kind: Kind, id: UInt64 = 0, owner: UInt32 = .max) {
        precondition(id & UInt64(UInt32.max) <= Self.slotMask, "more slots than descriptors")
        let owner = min(UInt64(owner), Self.ownerMask)
        rawValue =
            kind.rawValue << 60 | owner << 40 | ((id >> 32) & Self.generationMask) << 24 | id & Self.slotMask
    }

    var kind: Kind? { Kind(rawValue: rawValue >> 60) }
    var slot: UInt32 { UInt32(truncatingIfNeeded: rawValue & Self.slotMask) }

    /// The owner's slot; nil if this is no socket, if it is armed past its end or if its owner's slot does
    /// not fit. Such a socket does not thaw its owner early.
    var owner: UInt32? {
        let owner = rawValue >> 40 & Self.ownerMask
        return owner == Self.ownerMask ? nil : UInt32(truncatingIfNeeded: owner)
    }

    /// Whether this is the token of `id`, or of an earlier object in its slot.
    func names(_ id: UInt64) -> Bool {
        slot == UInt32(truncatingIfNeeded: id)
            && (rawValue >> 24) & Self.generationMask == (id >> 32) & Self.generationMask
    }
}
