import Glibc
package import Launching

/// The program that observes the machine, and how it is started.
package struct MonitorProgram: Sendable, Equatable {
    package var path: String
    /// nil: the supervisor's own.
    package var identity: ProcessIdentity?
    /// Its variables: where the message bus is, for example.
    package var environment: [String: String] = [:]
    var arguments: [String] = []

    package init(path: String, identity: ProcessIdentity? = nil, environment: [String: String] = [:]) {
        self.path = path
        self.identity = identity
        self.environment = environment
    }

    /// The same program for a user's session. PipeWire and the session's bus talk to processes of that user
    /// alone, so it becomes that user; nil: it cannot.
    func session(of user: uid_t) -> MonitorProgram? {
        var program = self
        program.identity = nil
        program.arguments = ["--session"]
        guard user != geteuid() else { return program }
        guard geteuid() == 0 else { return nil }
        program.arguments += ["--user", "\(user)"]
        program.environment["XDG_RUNTIME_DIR"] = "/run/user/\(user)"
        program.environment["DBUS_SESSION_BUS_ADDRESS"] = nil
        return program
    }
}
