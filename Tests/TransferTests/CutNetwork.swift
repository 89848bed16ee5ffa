import EdgeTestSupport
import Glibc
import LinuxSystem

/// Two machines with a cable between them: namespaces of a server and of its clients.
final class CutNetwork {
    /// The ways in which a network fails.
    enum Fault: Sendable, CaseIterable {
        /// No packet arrives any more, and nothing says so: the cable is out.
        case silence
        /// A box on the way resets all connections, and refuses new ones.
        case reset
        /// Every fifth packet of the server's is lost.
        case loss
    }

    static var isPossible: Bool {
        NetworkNamespace.isPossible && access(filter, X_OK) == 0 && access(Nginx.program, X_OK) == 0
    }

    private static let filter = "/usr/sbin/nft"
    static let address = "10.77.0.2"

    let server: NetworkNamespace
    let client: NetworkNamespace

    init() throws {
        client = try NetworkNamespace()
        server = try NetworkNamespace()
        try client.addPair()
        try client.ip("link set v1 netns \(server.name)")
        try client.ip("address add 10.77.0.1/24 dev v0")
        try server.ip("address add \(Self.address)/24 dev v1")
        try server.ip("link set v1 up")
        try server.ip("link set lo up")
    }

    func begin(_ fault: Fault) throws {
        switch fault {
        case .silence: try server.ip("link set v1 down")
        case .reset: try filter("input", "iifname v1 meta l4proto tcp reject with tcp reset")
        case .loss: try filter("output", "oifname v1 numgen random mod 5 == 0 drop")
        }
    }

    func end(_ fault: Fault) throws {
        switch fault {
        case .silence: try server.ip("link set v1 up")
        case .reset, .loss: try nft("delete table ip faults")
        }
    }

    private func filter(_ hook: String, _ rule: String) throws {
        try nft("table ip faults { chain faulty { type filter hook \(hook) priority 0; \(rule); }; }")
    }

    private func nft(_ text: String) throws {
        let (message, code) = try run(in: server, Self.filter, text)
        guard code == 0 else { throw Unexpected("nft \(text): \(message)") }
    }

    /// The connections of a state on the client's side, one a line.
    func connections(_ state: String) throws -> String {
        try run(in: client, "/usr/bin/ss", "-Htn", "state", state).text
    }

    private func run(in namespace: NetworkNamespace, _ words: String...) throws -> (text: String, code: CInt)
    {
        let words = namespace.entering + words
        let child = try Child(words[0], Array(words.dropFirst()))
        var text = ""
        while let piece = try child.hear(within: 60_000), !piece.isEmpty { text += piece }
        child.reap()
        return (text, child.status >> 8)
    }
}
