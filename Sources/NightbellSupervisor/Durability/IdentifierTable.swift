/// The owner of each identifier, and the clients that their user has quit: all that outlives a supervisor.
///
/// On disk it is text, so that people can read it: a line with the version, one for each identifier with its
/// uid and attributes, and a checksum of all that comes before. Any byte that is missing or wrong is noticed.
///
///     nightbell-identifiers 2
///     1000 - org.example.chat
///     1000 quit:6c7e8b0e-… org.example.phone
///     sum 1c291ca3
package struct IdentifierTable: Sendable, Equatable {
    package struct Entry: Sendable, Hashable {
        package var user: UInt32
        package var isQuit: Bool
        /// The boot ID of the machine's run in which it was quit. Empty: unknown.
        package var quitBoot: String

        package init(user: UInt32, isQuit: Bool, quitBoot: String = "") {
            self.user = user
            self.isQuit = isQuit
            self.quitBoot = isQuit ? quitBoot : ""
        }

        fileprivate var state: String { isQuit ? quitBoot.isEmpty ? "quit" : "quit:\(quitBoot)" : "-" }
    }

    /// Why a file is not used.
    package enum Damage: Error, Sendable, Hashable, CustomStringConvertible {
        /// The checksum does not match.
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

    /// The version that is written, and the latest that can be read.
    package static let version = 2
    /// It does not record the boot in which a client was quit.
    private static let versionWithoutBoots = "1"
    private static let magic = "nightbell-identifiers "

    /// As written, sorted by identifier: no entry has memory of its own.
    private var lines: [UInt8] = []

    package init(_ entries: [String: Entry] = [:]) {
        change(entries.mapValues { $0 })
    }

    package var encoded: [UInt8] { Self.sealed(Array("\(Self.magic)\(Self.version)\n".utf8) + lines) }

    package init(decoding bytes: [UInt8]) throws(Damage) {
        lines = Array(try Self.unsealed(bytes))
        guard String(validating: lines, as: UTF8.self) != nil else { throw .checksum }
        var start = 0
        var last: ArraySlice<UInt8> = []
        while start < lines.count {
            // A line that differs from its canonical form was not written by this program.
            guard let line = Line(in: lines, at: start), last.lexicographicallyPrecedes(line.identifier)
            else { throw .checksum }
            start = line.end
            last = line.identifier
        }
    }

    /// In the order of the identifiers.
    package func forEach(_ body: (_ identifier: String, Entry) -> Void) {
        var start = 0
        while let line = Line(in: lines, at: start) {
            body(String(decoding: line.identifier, as: UTF8.self), line.entry)
            start = line.end
        }
    }

    /// Applies changes of some identifiers; nil: the entry is removed.
    package mutating func change(_ changes: [String: Entry?]) {
        var changed: [UInt8] = []
        changed.reserveCapacity(lines.count + 64 * changes.count)
        var start = 0
        let sorted = changes.sorted { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }
        for (identifier, entry) in sorted {
            let before = start
            var next = Line(in: lines, at: start)
            while let line = next, line.identifier.lexicographicallyPrecedes(identifier.utf8) {
                start = line.end
                next = Line(in: lines, at: start)
            }
            changed += lines[before..<start]
            if let line = next, line.identifier.elementsEqual(identifier.utf8) { start = line.end }
            if let entry { changed += "\(entry.user) \(entry.state) \(identifier)\n".utf8 }
        }
        changed += lines[start...]
        lines = changed
    }

    // MARK: A line

    private struct Line {
        let entry: Entry
        let identifier: ArraySlice<UInt8>
        /// Where the next line begins.
        let end: Int

        /// nil: there is none, or it is not canonical.
        init?(in lines: [UInt8], at start: Int) {
            guard let newline = lines[start...].firstIndex(of: UInt8(ascii: "\n")) else { return nil }
            let fields = lines[start..<newline].split(
                separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
            guard fields.count == 3, !fields[2].isEmpty else { return nil }
            let digits = String(decoding: fields[0], as: UTF8.self)
            guard let user = UInt32(digits), "\(user)" == digits else { return nil }
            switch String(decoding: fields[1], as: UTF8.self) {
            case "-": entry = Entry(user: user, isQuit: false)
            case "quit": entry = Entry(user: user, isQuit: true)
            case let text where text.hasPrefix("quit:") && text.utf8.count > 5:
                entry = Entry(user: user, isQuit: true, quitBoot: String(text.dropFirst(5)))
            default: return nil
            }
            identifier = fields[2]
            end = newline + 1
        }
    }

    // MARK: The checksum

    private static func sealed(_ body: [UInt8]) -> [UInt8] {
        let digits = String(checksum(body), radix: 16)
        return body + Array("sum \(String(repeating: "0", count: 8 - digits.count))\(digits)\n".utf8)
    }

    /// The lines after the first, without the checksum. It is computed the same way in every version; a later
    /// version is reported only for a file that is whole.
    private static func unsealed(_ bytes: [UInt8]) throws(Damage) -> ArraySlice<UInt8> {
        guard bytes.count > 13, sealed(Array(bytes.dropLast(13))) == bytes, bytes.starts(with: magic.utf8),
            let end = bytes.firstIndex(of: UInt8(ascii: "\n")), end < bytes.count - 13
        else { throw .checksum }
        let version = String(decoding: bytes[magic.utf8.count..<end], as: UTF8.self)
        guard version == "\(Self.version)" || version == Self.versionWithoutBoots else {
            throw .newer(version: version)
        }
        return bytes[(end + 1)..<(bytes.count - 13)]
    }

    /// CRC-32 as in ISO 3309: any change of up to 32 bits in a row is noticed.
    private static func checksum(_ bytes: [UInt8]) -> UInt32 {
        let table = remainders
        return ~bytes.reduce(~0 as UInt32) { sum, byte in
            sum >> 8 ^ table[Int(UInt8(truncatingIfNeeded: sum) ^ byte)]
        }
    }

    /// For each byte.
    private static let remainders: [UInt32] = (0..<256).map { byte in
        (0..<8).reduce(UInt32(byte)) { sum, _ in sum >> 1 ^ (sum & 1 == 1 ? 0xEDB8_8320 : 0) }
    }
}
