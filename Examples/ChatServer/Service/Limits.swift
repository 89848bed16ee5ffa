/// The limits of the server.
package enum Limits {
    package static let nameBytes = 24
    package static let roomBytes = 32
    package static let textBytes = 4_096
    package static let frameBytes = 16_384
    package static let historyLines = 50
    /// The sum over all rooms. Beyond it, empty rooms lose their history first, then the room with the new
    /// message.
    package static let historyBytes = 16 << 20
    package static let rooms = 4_096
    /// The largest room with a list of names; of a larger one, only the number of members is sent.
    package static let namedMembers = 200
    /// A connection with this much unread output is closed at the next message.
    package static let unreadBytes = 1 << 20

    /// Whether a name is visibly distinct from others: no control characters, and no invisible ones at its
    /// ends.
    package static func isName(_ name: String, bytes: Int) -> Bool {
        guard let first = name.unicodeScalars.first, let last = name.unicodeScalars.last,
            name.utf8.count <= bytes
        else { return false }
        return !first.properties.isWhitespace && !last.properties.isWhitespace
            && name.unicodeScalars.allSatisfy { isPlain($0) && !isInvisible($0) }
    }

    package static func isText(_ text: String) -> Bool {
        text.utf8.count <= textBytes
            && text.unicodeScalars.contains { !$0.properties.isWhitespace && !isInvisible($0) }
            && text.unicodeScalars.allSatisfy { isPlain($0) || $0 == "\n" || $0 == "\t" }
    }

    /// Characters that are not drawn, or move their neighbours.
    private static func isInvisible(_ scalar: Unicode.Scalar) -> Bool {
        scalar.properties.generalCategory == .format || scalar.properties.isDefaultIgnorableCodePoint
    }

    private static func isPlain(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.properties.generalCategory {
        case .control, .lineSeparator, .paragraphSeparator: false
        default: true
        }
    }
}
