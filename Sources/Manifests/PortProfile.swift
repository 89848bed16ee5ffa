/// The protocol that a program speaks over its connections to a port, so that pings are answered while it
/// sleeps.
package struct PortProfile: Sendable, Hashable, CustomStringConvertible {
    package enum Name: String, Sendable, Hashable, CaseIterable {
        case imap, irc, mqtt, sip, websocket, xmpp

        /// Of plain connections.
        var port: UInt16 {
            switch self {
            case .imap: 143
            case .irc: 6_667
            case .mqtt: 1_883
            case .sip: 5_060
            case .websocket: 80
            case .xmpp: 5_222
            }
        }
    }

    package let name: Name
    /// Of the peer.
    package let port: UInt16

    /// Why a text is no profile, for its writer.
    package struct Problem: Error, CustomStringConvertible {
        package let description: String
    }

    /// Parses `NAME`, with the protocol's usual port, or `NAME:PORT`.
    package init(_ text: String) throws(Problem) {
        let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        guard let name = parts.first.flatMap({ Name(rawValue: String($0)) }),
            let port = parts.count == 1 ? name.port : UInt16(parts[1]), port > 0
        else {
            let names = Name.allCases.map(\.rawValue).joined(separator: ", ")
            throw Problem(description: "expected \(names), or one of these with a port, such as irc:6667")
        }
        if Self.encryptedPorts.contains(port) {
            throw Problem(
                description:
                    "connections to port \(port) are encrypted, and nothing but the program reads them")
        }
        self.name = name
        self.port = port
    }

    /// HTTPS, IMAP, IRC, MQTT, SIP and XMPP over TLS.
    private static let encryptedPorts: Set<UInt16> = [443, 993, 5_061, 5_223, 6_697, 8_443, 8_883]

    package var description: String { "\(name.rawValue):\(port)" }
}
