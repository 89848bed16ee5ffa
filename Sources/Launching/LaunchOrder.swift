/// A launch request: program, identity and descriptors.
package struct LaunchOrder: Sendable {
    package var specification: LaunchSpecification
    package var identity: ProcessIdentity
    /// Variables set by the supervisor, beside those of the specification.
    package var additions: [String: String] = [:]
    /// The sockets that the program inherits, with their names. They are numbered from descriptor 3 on, in
    /// this order, as in socket activation: `LISTEN_FDS`, `LISTEN_FDNAMES`, `LISTEN_PID`.
    package var sockets: [Socket] = []
    /// A connection to the supervisor, if the program gets one: its descriptor comes after those of the
    /// sockets and is in `NIGHTBELL_CONNECTION_FD`; `NIGHTBELL_CONNECTION_PID` names the process that it is
    /// for.
    package var connection: CInt?

    package struct Socket: Sendable {
        package var descriptor: CInt
        package var name: String

        package init(_ descriptor: CInt, name: String) {
            self.descriptor = descriptor
            self.name = name
        }
    }

    package init(_ specification: LaunchSpecification, as identity: ProcessIdentity) {
        self.specification = specification
        self.identity = identity
    }

    /// The first descriptor of socket activation.
    package static let firstDescriptor: CInt = 3

    var descriptors: [CInt] { sockets.map(\.descriptor) + (connection.map { [$0] } ?? []) }

    var processVariables: [String] {
        (sockets.isEmpty ? [] : ["LISTEN_PID"]) + (connection == nil ? [] : ["NIGHTBELL_CONNECTION_PID"])
    }

    /// All variables except `processVariables`.
    var environment: [(name: String, value: String)] {
        var result = specification.environment.filter { !LaunchSpecification.isReserved($0.key) }
        result.merge(additions) { $1 }
        if !sockets.isEmpty {
            result["LISTEN_FDS"] = String(sockets.count)
            result["LISTEN_FDNAMES"] = sockets.map { Self.activationName($0.name) }.joined(separator: ":")
        }
        if connection != nil {
            result["NIGHTBELL_CONNECTION_FD"] = String(Int(Self.firstDescriptor) + sockets.count)
        }
        return result.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
    }

    /// Names are separated by colons, and must be printable ASCII; a socket without a name is called
    /// `unknown`, as in socket activation.
    package static func activationName(_ name: String) -> String {
        let plain = name.utf8.map { byte in
            (0x20..<0x7F).contains(byte) && byte != UInt8(ascii: ":") ? byte : UInt8(ascii: "_")
        }
        return plain.isEmpty ? "unknown" : String(decoding: plain, as: UTF8.self)
    }

    /// The possible paths of the program. A name with a slash has only one.
    var programs: [String] {
        guard let program = specification.arguments.first, !program.contains("/") else {
            return specification.arguments.first.map { [$0] } ?? []
        }
        let path = specification.environment["PATH"] ?? LaunchSpecification.standardPath
        return path.split(separator: ":").filter { $0.hasPrefix("/") }.map { "\($0)/\(program)" }
    }

    /// Only root can change its identity, and has to even to keep it: groups are inherited otherwise.
    var changesIdentity: Bool { currentUser() == 0 || identity.user != currentUser() }
}
