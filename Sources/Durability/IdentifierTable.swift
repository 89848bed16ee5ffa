/// Whom each identifier belongs to, and which clients their user has quit: all that outlives a supervisor.
///
/// On disk it is text, so that people can read it: a line that names the version, one for each identifier with its
/// uid and what is to be known of it, and a checksum of all that comes before. Any byte that is missing or wrong is
/// noticed.
///
///     nightbell-identifiers 1
///     1000 - org.example.chat
///     1000 quit org.example.phone
///     sum 1c291ca3
package struct IdentifierTable: Sendable, Equatable {
    package struct Entry: Sendable, Hashable {
        package var user: UInt32
        package var isQuit: Bool

        package init(user: UInt32, isQuit: Bool) {
            self.user = user
            self.isQuit = isQuit
        }
    }

    /// Why a file is not used.
    package enum Damage: Error, Sendable, Hashable, CustomStringConvertible {
        /// It is not what was written.
        case checksum
        /// A later version of Nightbell has written it.
        case newer(version: String)

        package var description: String {
            switch self {
            case .checksum: "it is damaged"
            case .newer(let version):
                "it is of version \(version), and this supervisor knows version \(IdentifierTable.version) only:"
                    + " run the newer supervisor, or move the file away"
            }
        }
    }

    /// What is written, and the latest that is understood.
    package static let version = 1
    private static let magic = "nightbell-identifiers "

    package var entries: [String: Entry] = [:]

    package init(entries: [String: Entry] = [:]) {
        self.entries = entries
    }

    package var encoded: [UInt8] {
        var text = Self.magic + "\(Self.version)\n"
        for (identifier, entry) in entries.sorted(by: { $0.key < $1.key }) {
            text += "\(entry.user) \(entry.isQuit ? "quit" : "-") \(identifier)\n"
        }
        return Self.sealed(Array(text.utf8))
    }

    package init(decoding bytes: [UInt8]) throws(Damage) {
        let body = try Self.unsealed(bytes)
        var lines = body.split(separator: "\n", omittingEmptySubsequences: false)
        guard lines.removeFirst().hasPrefix(Self.magic), lines.popLast() == "" else { throw .checksum }
        for line in lines {
            let fields = line.split(separator: " ", omittingEmptySubsequences: false)
            guard fields.count == 3, let user = UInt32(fields[0]) else { throw .checksum }
            entries[String(fields[2])] = Entry(user: user, isQuit: fields[1] == "quit")
        }
        // Whatever is not exactly as it would be written was written by somebody else.
        guard encoded == bytes else { throw .checksum }
    }

    // MARK: The seal

    private static func sealed(_ body: [UInt8]) -> [UInt8] {
        let digits = String(checksum(body), radix: 16)
        return body + Array("sum \(String(repeating: "0", count: 8 - digits.count))\(digits)\n".utf8)
    }

    /// The text without its checksum, which is right in every version; that the version is a later one is told
    /// only of a file that is whole.
    private static func unsealed(_ bytes: [UInt8]) throws(Damage) -> Substring {
        guard bytes.count > 13, sealed(Array(bytes.dropLast(13))) == bytes,
            let text = String(validating: bytes.dropLast(13), as: UTF8.self), text.hasPrefix(magic)
        else { throw .checksum }
        let version = text.dropFirst(magic.count).prefix { $0 != "\n" }
        guard version == "\(Self.version)" else { throw .newer(version: String(version)) }
        return text[...]
    }

    /// CRC-32 as in ISO 3309: any change of up to 32 bits in a row is noticed.
    private static func checksum(_ bytes: [UInt8]) -> UInt32 {
        let table = remainders
        return ~bytes.reduce(~0 as UInt32) { sum, byte in
            sum >> 8 ^ table[Int(UInt8(truncatingIfNeeded: sum) ^ byte)]
        }
    }

    /// That of each byte.
    private static let remainders: [UInt32] = (0..<256).map { byte in
        (0..<8).reduce(UInt32(byte)) { sum, _ in sum >> 1 ^ (sum & 1 == 1 ? 0xEDB8_8320 : 0) }
    }
}
