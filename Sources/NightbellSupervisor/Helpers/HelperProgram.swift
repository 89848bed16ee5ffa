package import Launching

/// The program of a process beside the supervisor, and how it is started.
package struct HelperProgram: Sendable, Equatable {
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
}
