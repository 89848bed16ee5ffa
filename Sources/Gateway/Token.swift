import Crypto

/// A token as it is stored: its hash, and what it permits. A token is 256 random bits, so that a plain
/// SHA-256 of it cannot be turned back.
package struct Token: Sendable, Equatable {
    /// To tell tokens apart, and to revoke one.
    package var name: String
    package var scopes: Set<Scope>
    /// SHA-256 of the whole text of the token.
    package var hash: [UInt8]

    /// The beginning of every token's text, so that programs that look for leaked secrets find it.
    package static let prefix = "nbgw_"

    package static let longestName = 64

    /// A new token and its text, which is shown once and not stored.
    package static func make(name: String, scopes: Set<Scope>) -> (token: Token, text: String) {
        var generator = SystemRandomNumberGenerator()
        let words = (0..<4).map { _ in generator.next() as UInt64 }
        let digits = words.map { word in
            let text = String(word, radix: 16)
            return String(repeating: "0", count: 16 - text.count) + text
        }
        let text = prefix + digits.joined()
        return (Token(name: name, scopes: scopes, hash: hash(of: text)), text)
    }

    package static func hash(of text: some StringProtocol) -> [UInt8] {
        Array(SHA256.hash(data: Array(text.utf8)))
    }

    /// Whether the hashes are equal, in a time that does not depend on where they differ.
    package func has(_ other: [UInt8]) -> Bool {
        guard other.count == hash.count else { return false }
        var difference: UInt8 = 0
        for index in hash.indices { difference |= hash[index] ^ other[index] }
        return difference == 0
    }

    package static func isName(_ text: String) -> Bool {
        (1...longestName).contains(text.utf8.count)
            && text.utf8.allSatisfy { byte in
                (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20)
                    || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
                    || [UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "-")].contains(byte)
            }
    }

    // MARK: Text

    /// A line of the token file: name, scopes, hash.
    var line: String {
        let scopes = Scope.allCases.filter(self.scopes.contains).map(\.rawValue).joined(separator: ",")
        let digits = hash.map { byte in (byte < 16 ? "0" : "") + String(byte, radix: 16) }
        return "\(name) \(scopes) \(digits.joined())"
    }

    /// Nil: it is no line of a token file.
    init?(line: some StringProtocol) {
        let parts = line.split(separator: " ", omittingEmptySubsequences: true)
        guard parts.count == 3, Self.isName(String(parts[0])), parts[2].utf8.count == 64 else { return nil }
        let scopes = parts[1].split(separator: ",").map { Scope(rawValue: String($0)) }
        guard !scopes.isEmpty, !scopes.contains(nil) else { return nil }
        let digits = Array(parts[2].utf8)
        var bytes: [UInt8] = []
        for index in stride(from: 0, to: digits.count, by: 2) {
            let pair = String(decoding: digits[index..<index + 2], as: UTF8.self)
            guard !pair.hasPrefix("+"), let byte = UInt8(pair, radix: 16) else { return nil }
            bytes.append(byte)
        }
        self.init(name: String(parts[0]), scopes: Set(scopes.compactMap(\.self)), hash: bytes)
    }

    init(name: String, scopes: Set<Scope>, hash: [UInt8]) {
        self.name = name
        self.scopes = scopes
        self.hash = hash
    }
}
