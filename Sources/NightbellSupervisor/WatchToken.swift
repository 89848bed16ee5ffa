/// What the loop's events carry: whose they are, in 64 bits.
struct WatchToken: Sendable {
    enum Kind: UInt64 {
        case listener
        case timer
        case signal
        case connectionReadable
        case connectionWritable
        case processExit
        case socket
    }

    /// As much of a generation as fits. Only events of one turn are told apart by it.
    private static let generationMask: UInt64 = 0x0fff_ffff

    let rawValue: UInt64

    init(rawValue: UInt64) {
        self.rawValue = rawValue
    }

    /// `id` is a slot with its generation in the upper half, as tokens and connection keys have it.
    init(_ kind: Kind, id: UInt64 = 0) {
        rawValue =
            kind.rawValue << 60 | ((id >> 32) & Self.generationMask) << 32 | id & UInt64(UInt32.max)
    }

    var kind: Kind? { Kind(rawValue: rawValue >> 60) }
    var slot: UInt32 { UInt32(truncatingIfNeeded: rawValue) }

    /// Whether this is the token of `id`, or of something that had its slot before.
    func names(_ id: UInt64) -> Bool {
        slot == UInt32(truncatingIfNeeded: id)
            && (rawValue >> 32) & Self.generationMask == (id >> 32) & Self.generationMask
    }
}
