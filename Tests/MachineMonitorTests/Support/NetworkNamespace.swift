import EdgeTestSupport
import Glibc
import LinuxSystem

/// A network namespace of a test's own, with one end of a veth pair in it.
final class NetworkNamespace {
    let name: String
    private static let ip = "/usr/sbin/ip"

    /// Whether this process may make namespaces.
    static var isPossible: Bool {
        guard geteuid() == 0, access(ip, X_OK) == 0, let namespace = try? NetworkNamespace() else {
            return false
        }
        return namespace.isThere
    }

    private var isThere: Bool { access("/run/netns/\(name)", F_OK) == 0 }

    init() throws {
        name = "nightbell-\(getpid())-\(UInt32.random(in: 0 ... .max))"
        try run([Self.ip, "netns", "add", name])
    }

    deinit { _ = try? run([Self.ip, "netns", "delete", name]) }

    /// Runs `ip` with these arguments in the namespace.
    func ip(_ arguments: String) throws {
        let done = try run([Self.ip, "-netns", name] + arguments.split(separator: " ").map(String.init))
        try check(done, "ip \(arguments) failed")
    }

    /// Both ends of the pair, up; `v0` is the one with addresses.
    func addPair() throws {
        try ip("link add v0 type veth peer name v1")
        // Without addresses of their own, which would become usable at some later moment.
        try ip("link set v0 addrgenmode none")
        try ip("link set v1 addrgenmode none")
        try ip("link set v0 up")
        try ip("link set v1 up")
    }
}
