import MachineMonitor

/// A program's registration, as the name of its address at the push service: nothing else is stored.
struct Registration: Hashable {
    enum Version: String {
        case one = "1"
        case two = "2"
    }

    let version: Version
    /// The program's name on the bus.
    let service: String
    /// Chosen by the program.
    let token: String

    private static let longestToken = 100
    /// The bus itself, and this program: neither takes messages.
    private static let reserved = ["org.freedesktop.DBus", Distributor.busName]

    /// nil: a value is not as the specification has it.
    init?(_ version: Version, service: String, token: String) {
        guard (1...Self.longestToken).contains(token.utf8.count), Self.isName(service),
            !Self.reserved.contains(service)
        else { return nil }
        self.version = version
        self.service = service
        self.token = token
    }

    /// nil: it is of no registration.
    init?(name: String) {
        let parts = name.split(separator: " ", maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3, let version = Version(rawValue: String(parts[0])) else { return nil }
        self.init(version, service: String(parts[1]), token: String(parts[2]))
    }

    var name: String { "\(version.rawValue) \(service) \(token)" }

    /// A well-known name, by the rules of D-Bus.
    private static func isName(_ text: String) -> Bool {
        let elements = text.split(separator: ".", omittingEmptySubsequences: false)
        return text.utf8.count <= 255 && elements.count >= 2
            && elements.allSatisfy { element in
                element.utf8.first.map { !(UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) } ?? false
                    && element.utf8.allSatisfy { byte in
                        (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20)
                            || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
                            || byte == UInt8(ascii: "_")
                            || byte == UInt8(ascii: "-")
                    }
            }
    }

    /// The interface and the object by which it is called.
    var interface: String { "org.unifiedpush.Connector\(version.rawValue)" }
    static let path = "/org/unifiedpush/Connector"
}
