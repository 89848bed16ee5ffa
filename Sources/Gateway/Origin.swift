/// Scheme, host and port by which a service is reached, such as `https://push.example.org`, in the form in which
/// programs compare them (RFC 6454): lower-case letters, and no port that is the scheme's own.
package struct Origin: Sendable, Equatable, CustomStringConvertible {
    package let description: String

    /// nil: it is none, or has a path, a query, or a user. A single `/` at the end is left out.
    package init?(_ text: String) {
        let parts = text.lowercased().split(separator: "://", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, let ownPort = Self.ports[parts[0]] else { return nil }
        let authority = parts[1].hasSuffix("/") ? parts[1].dropLast() : parts[1]
        guard let (host, port) = Self.split(authority), Self.isHost(host) else { return nil }
        guard port != "" && port != ownPort else {
            description = "\(parts[0])://\(host)"
            return
        }
        guard port.first != "0", port.utf8.allSatisfy(Self.isDigit), UInt16(port) != nil else { return nil }
        description = "\(parts[0])://\(host):\(port)"
    }

    private static let ports: [Substring: Substring] = ["http": "80", "https": "443"]

    /// - Returns: the port is empty if there is none. nil: there is a colon without one.
    private static func split(_ authority: Substring) -> (host: Substring, port: Substring)? {
        // An address of IPv6 has colons itself.
        let end = authority.lastIndex(of: "]").map(authority.index(after:)) ?? authority.startIndex
        guard let colon = authority[end...].firstIndex(of: ":") else { return (authority, "") }
        let port = authority[authority.index(after: colon)...]
        return port.isEmpty ? nil : (authority[..<colon], port)
    }

    private static func isHost(_ text: Substring) -> Bool {
        if text.hasPrefix("["), text.hasSuffix("]") {
            let address = text.dropFirst().dropLast()
            return address.contains(":")
                && address.utf8.allSatisfy {
                    isDigit($0) || (0x61...0x66).contains($0) || $0 == 0x3A || $0 == 0x2E
                }
        }
        return !text.isEmpty
            && text.utf8.allSatisfy { byte in
                isDigit(byte) || (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte)
                    || byte == UInt8(ascii: ".") || byte == UInt8(ascii: "-") || byte == UInt8(ascii: "_")
            }
    }

    private static func isDigit(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
    }
}
