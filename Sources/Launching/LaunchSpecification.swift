/// How a program is started, without its identity.
package struct LaunchSpecification: Sendable, Hashable {
    /// The program first. A name without a slash is searched in the `PATH` of `environment`.
    package var arguments: [String]
    /// The working directory, as an absolute path.
    package var directory: String
    /// Its whole environment, except for the launcher's additions.
    package var environment: [String: String]
    package var limits: [ResourceLimit]
    /// The umask: permission bits that new files do not get.
    package var fileModeMask: UInt32
    /// A file to which its standard output and error are appended, created if missing; nil: they are
    /// discarded.
    package var output: String?

    package init(
        arguments: [String], directory: String = "/", environment: [String: String] = [:],
        limits: [ResourceLimit] = [], fileModeMask: UInt32 = 0o022, output: String? = nil
    ) {
        self.arguments = arguments
        self.directory = directory
        self.environment = environment
        self.limits = limits
        self.fileModeMask = fileModeMask
        self.output = output
    }

    /// The search path if the environment has none.
    package static let standardPath = "/usr/local/bin:/usr/bin:/bin"

    /// Variables that describe a launch: each launch sets its own.
    package static func isReserved(_ variable: String) -> Bool {
        variable.hasPrefix("LISTEN_") || variable.hasPrefix("NIGHTBELL_")
    }

    /// The limit of all texts together, each with its length prefix: they are stored in one keeper record.
    package static let maximumBytes = 65_536
    private static let bytesBeside = 4

    /// Each text. It makes no list of them, because a launch waits for the checks.
    private func forEachText(_ body: (String) -> Void) {
        arguments.forEach(body)
        body(directory)
        body(output ?? "")
        for (name, value) in environment {
            body(name)
            body(value)
        }
    }

    /// The size that counts against `maximumBytes`.
    package var byteCount: Int {
        var count = 0
        forEachText { count += $0.utf8.count + Self.bytesBeside }
        return count
    }

    private var containsZero: Bool {
        var containsZero = false
        forEachText { containsZero = containsZero || $0.utf8.contains(0) }
        return containsZero
    }

    /// Why it cannot be launched; nil if it can be tried.
    package var problem: String? {
        guard let program = arguments.first, !program.isEmpty else { return "no program" }
        guard program.hasPrefix("/") || !program.utf8.contains(UInt8(ascii: "/")) else {
            return "the program is named by neither an absolute path nor a plain name"
        }
        guard directory.hasPrefix("/") else { return "the directory is not an absolute path" }
        guard !containsZero else { return "a text contains a zero byte" }
        guard byteCount <= Self.maximumBytes else {
            return """
                arguments, environment, directory and output take \(byteCount) bytes, \(Self.bytesBeside) beside each \
                text included: there is room for \(Self.maximumBytes)
                """
        }
        let hasNames = environment.keys.allSatisfy { !$0.isEmpty && !$0.utf8.contains(UInt8(ascii: "=")) }
        return hasNames ? nil : "a variable without a name"
    }
}
