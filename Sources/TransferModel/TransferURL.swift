/// An absolute `http` or `https` address.
package struct TransferURL: Hashable, Sendable {
    package let text: String
    package let isSecure: Bool
    /// With the port, if it is given; in lower case.
    package let host: String

    /// In bytes.
    package static let maximumBytes = 8 * 1024

    /// In place of one that is stored, and that today's rules do not permit any more.
    package static let refused = TransferURL()

    private init() {
        text = ""
        isSecure = false
        host = ""
    }

    /// nil: another scheme, no host, a port that there cannot be, or bytes that do not belong into an address.
    package init?(_ text: String) {
        guard text.utf8.count <= Self.maximumBytes, text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }),
            let colon = text.firstIndex(of: ":")
        else { return nil }
        switch text[..<colon].lowercased() {
        case "http": isSecure = false
        case "https": isSecure = true
        default: return nil
        }
        let rest = text[text.index(after: colon)...]
        guard rest.hasPrefix("//") else { return nil }
        let authority = rest.dropFirst(2).prefix { $0 != "/" && $0 != "?" && $0 != "#" }
        let host = authority.lastIndex(of: "@").map { authority[authority.index(after: $0)...] } ?? authority
        guard Self.isHost(host) else { return nil }
        self.text = text
        self.host = host.lowercased()
    }

    /// A name or an address, perhaps with a port (RFC 3986 sections 3.2.2 and 3.2.3).
    private static func isHost(_ text: Substring) -> Bool {
        let name: Substring
        let rest: Substring
        if text.first == "[" {
            guard let end = text.firstIndex(of: "]") else { return false }
            name = text[..<end].dropFirst()
            rest = text[text.index(after: end)...]
            // Of version 6, perhaps with a zone.
            guard name.contains(":"), name.prefix(while: { $0 != "%" }).utf8.allSatisfy(isOfAddress) else {
                return false
            }
        } else {
            name = text.prefix { $0 != ":" }
            rest = text[name.endIndex...]
        }
        guard !name.isEmpty, !name.utf8.contains(where: banned.contains) else { return false }
        guard let colon = rest.first else { return true }
        let port = rest.dropFirst()
        return colon == ":" && (port.isEmpty || ResponseHead.length(port).map { $0 <= 65_535 } ?? false)
    }

    private static func isOfAddress(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "f"),
            UInt8(ascii: "A")...UInt8(ascii: "F"), UInt8(ascii: ":"), UInt8(ascii: "."):
            true
        default: false
        }
    }

    private static let banned = Set("[]\\\"<>^`{|}".utf8)
}
