import Glibc

/// Scheme, host and port by which a service is reached, such as `https://push.example.org`, in the form in which
/// programs compare them (RFC 6454): lower-case letters, no port that is the scheme's own, and one way to write an
/// address of IPv6.
package struct Origin: Sendable, Equatable, CustomStringConvertible {
    package let description: String

    /// nil: it is none, or has a path, a query, or a user. A single `/` at the end is left out.
    package init?(_ text: String) {
        let parts = text.lowercased().split(separator: "://", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, let ownPort = Self.ports[parts[0]] else { return nil }
        let authority = parts[1].hasSuffix("/") ? parts[1].dropLast() : parts[1]
        guard let (name, port) = Self.split(authority), let host = Self.host(name) else { return nil }
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

    /// nil: it is no host.
    private static func host(_ text: Substring) -> String? {
        if text.hasPrefix("["), text.hasSuffix("]") {
            return address(String(text.dropFirst().dropLast())).map { "[\($0)]" }
        }
        let isName =
            !text.isEmpty
            && text.utf8.allSatisfy { byte in
                isDigit(byte) || (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte)
                    || byte == UInt8(ascii: ".") || byte == UInt8(ascii: "-") || byte == UInt8(ascii: "_")
            }
        return isName ? String(text) : nil
    }

    /// nil: it is no address of IPv6.
    private static func address(_ text: String) -> String? {
        var address = in6_addr()
        // The zero byte would end it.
        guard !text.utf8.contains(0), inet_pton(AF_INET6, text, &address) == 1 else { return nil }
        var written = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        return written.withUnsafeMutableBufferPointer { written in
            inet_ntop(AF_INET6, &address, written.baseAddress, socklen_t(written.count)).map {
                String(cString: $0)
            }
        }
    }

    private static func isDigit(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
    }
}
