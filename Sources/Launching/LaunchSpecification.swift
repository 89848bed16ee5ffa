/// How a program is started: everything but who it runs as.
package struct LaunchSpecification: Sendable, Hashable {
    /// The program first. One without a slash is looked for in the `PATH` of `environment`.
    package var arguments: [String]
    /// An absolute path; the program starts there.
    package var directory: String
    /// All of its environment, but for what the launcher adds.
    package var environment: [String: String]
    package var limits: [ResourceLimit]
    /// Bits that the files it makes do not have.
    package var fileModeMask: UInt32
    /// A file that its standard output and error are appended to, made if there is none; nil: they go nowhere.
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

    /// Where programs are looked for when the environment does not say.
    package static let standardPath = "/usr/local/bin:/usr/bin:/bin"

    /// The names of variables that say something about a launch: a launch gives each its own.
    package static func isReserved(_ variable: String) -> Bool {
        variable.hasPrefix("LISTEN_") || variable.hasPrefix("NIGHTBELL_")
    }

    /// How long all texts may be together, each with what tells its length: they are kept in one record of the keeper's.
    package static let maximumBytes = 65_536
    private static let bytesBeside = 4

    private var texts: [String] {
        arguments + [directory, output ?? ""] + environment.keys + environment.values
    }

    /// What counts against `maximumBytes`.
    package var byteCount: Int { texts.reduce(0) { $0 + $1.utf8.count + Self.bytesBeside } }

    /// Why nothing can be started like this; nil if it can be tried.
    package var problem: String? {
        guard let program = arguments.first, !program.isEmpty else { return "no program" }
        guard program.hasPrefix("/") || !program.utf8.contains(UInt8(ascii: "/")) else {
            return "the program is named by neither an absolute path nor a plain name"
        }
        guard directory.hasPrefix("/") else { return "the directory is no absolute path" }
        guard texts.allSatisfy({ !$0.utf8.contains(0) }) else { return "a text contains a zero byte" }
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
