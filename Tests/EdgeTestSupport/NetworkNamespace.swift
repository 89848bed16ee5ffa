import Glibc
package import LinuxSystem

/// A network namespace of a test's own, with one end of a veth pair in it.
package final class NetworkNamespace {
    package let name: String
    private static let program = "/usr/sbin/ip"

    /// Whether this process may make namespaces.
    package static var isPossible: Bool {
        guard geteuid() == 0, access(program, X_OK) == 0, let namespace = try? NetworkNamespace() else {
            return false
        }
        return access(namespace.path, F_OK) == 0
    }

    /// The words that run a program in it.
    package var entering: [String] { ["/usr/bin/nsenter", "--net=" + path] }

    /// The file that a process opens to enter it.
    package var path: String { "/run/netns/\(name)" }

    package init() throws(SystemError) {
        name = "nightbell-\(getpid())-\(UInt32.random(in: 0 ... .max))"
        try Self.run(["netns", "add", name])
    }

    deinit { try? Self.run(["netns", "delete", name]) }

    /// Runs `ip` with these arguments in the namespace.
    package func ip(_ arguments: String) throws(SystemError) {
        try Self.run(["-netns", name] + arguments.split(separator: " ").map(String.init))
    }

    /// Both ends of the pair, up; `v0` is the one with addresses.
    package func addPair() throws(SystemError) {
        try ip("link add v0 type veth peer name v1")
        // Without addresses of their own, which would become usable at some later moment.
        try ip("link set v0 addrgenmode none")
        try ip("link set v1 addrgenmode none")
        try ip("link set v0 up")
        try ip("link set v1 up")
    }

    private static func run(_ arguments: [String]) throws(SystemError) {
        let child = try Child(program, arguments)
        child.reap()
        guard child.status == 0 else {
            throw SystemError(code: ECHILD, call: "ip " + arguments.joined(separator: " "))
        }
    }
}
