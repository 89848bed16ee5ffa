internal import NIOCore

/// Which members of a room sleep, as `GET /sleepers?room=…` shows it.
struct Sleepers: Codable, Sendable, Equatable {
    var members = 0
    var asleep = 0
    /// Names of sleeping members, up to the limit of named members.
    var names: [String] = []

    mutating func add(_ other: Sleepers) {
        members += other.members
        asleep += other.asleep
        names += other.names.prefix(Limits.namedMembers - names.count)
    }

    /// The room of a query such as `?room=lobby`.
    static func room(in uri: String) -> String? {
        guard let query = uri.split(separator: "?", maxSplits: 1).dropFirst().first else { return nil }
        for pair in query.split(separator: "&") where pair.hasPrefix("room=") {
            return decoded(pair.dropFirst("room=".count))
        }
        return nil
    }

    /// Without percent encoding (RFC 3986, section 2.1); nil: it is malformed, or longer than a room's name.
    private static func decoded(_ text: Substring) -> String? {
        var bytes: [UInt8] = []
        var rest = Array(text.utf8)[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard rest.count >= 2,
                let value = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16)
            else { return nil }
            bytes.append(value)
            rest = rest.dropFirst(2)
        }
        return bytes.count <= Limits.roomBytes ? String(validating: bytes, as: UTF8.self) : nil
    }
}

extension Members {
    /// The members of a room on this event loop, and which of them sleep.
    func sleepers(in roomName: String) -> Sleepers {
        var sleepers = Sleepers()
        guard let room = hall.room(named: roomName) else { return sleepers }
        var names: [UInt32] = []
        forEachMember(of: room) { name, isAsleep in
            sleepers.members += 1
            guard isAsleep else { return }
            sleepers.asleep += 1
            if names.count < Limits.namedMembers { names.append(name) }
        }
        sleepers.names = hall.names(of: names)
        return sleepers
    }
}
