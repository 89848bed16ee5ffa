/// What nobody may exceed.
package enum Limits {
    package static let nameBytes = 24
    package static let roomBytes = 32
    package static let textBytes = 4_096
    package static let frameBytes = 16_384
    package static let historyLines = 50
    /// Of all rooms together. With more, rooms that are empty lose theirs, and then whoever says something.
    package static let historyBytes = 16 << 20
    package static let rooms = 4_096
    /// Members that are told by name; of a larger room, only their number is.
    package static let namedMembers = 200
    /// Whoever has so much still to read, and is to be told more, is closed.
    package static let unreadBytes = 1 << 20

    /// Whether people can tell such a name from others: no control characters, and none at its ends that nobody sees.
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

    /// What is not drawn, or has what stands beside it drawn elsewhere.
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
