import CLinux
import CTestSupport
import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import Testing

/// In a network namespace of its own: addresses come and go.
@Suite(.enabled(if: geteuid() == 0)) struct SocketPathTests {
    @Test func anAddressThatIsGoneIsNoticed() throws {
        try inOwnNetwork {
            try ip("addr add 192.0.2.1/32 dev lo", "addr add 192.0.2.2/32 dev lo")
            let socket = try connected(from: "192.0.2.1", to: "192.0.2.2")
            defer { close(socket) }
            #expect(SocketPath.isRouted(socket) && SocketPath(of: socket) == .works)
            try ip("addr del 192.0.2.1/32 dev lo")
            #expect(SocketPath.isRouted(socket) && SocketPath(of: socket) == .addressGone)
            try ip("addr add 192.0.2.1/32 dev lo")
            #expect(SocketPath(of: socket) == .works)
        }
    }

    @Test func aPeerWithoutRouteIsNoticed() throws {
        try inOwnNetwork {
            try ip("addr add 192.0.2.1/32 dev lo", "route add 198.51.100.0/24 dev lo")
            let socket = try connected(from: "192.0.2.1", to: "198.51.100.7")
            defer { close(socket) }
            #expect(SocketPath(of: socket) == .works)
            try ip("route del 198.51.100.0/24 dev lo")
            #expect(SocketPath(of: socket) == .unreachable)
        }
    }

    @Test func aRouteByAnotherInterfaceIsNoticed() throws {
        try inOwnNetwork {
            try ip(
                "link add one type veth peer name three", "link add two type veth peer name four",
                "link set one up", "link set two up", "link set three up", "link set four up",
                "addr add 192.0.2.1/24 dev one", "addr add 192.0.2.9/24 dev one",
                "addr add 203.0.113.1/24 dev two", "route add 198.51.100.0/24 dev one src 192.0.2.1")
            let first = try connected(from: "192.0.2.1", to: "198.51.100.7")
            let second = try connected(from: "192.0.2.9", to: "198.51.100.7")
            defer { for socket in [first, second] { close(socket) } }
            // The other one is also an address of that interface.
            #expect(SocketPath(of: first) == .works && SocketPath(of: second) == .works)
            try ip("route replace 198.51.100.0/24 dev two src 203.0.113.1")
            #expect(SocketPath(of: first) == .unreachable && SocketPath(of: second) == .unreachable)
        }
    }

    @Test func addressesThatAreAlwaysThereAreNotRouted() throws {
        let socket = try connected(from: "127.0.0.1", to: "127.0.0.1")
        defer { close(socket) }
        #expect(!SocketPath.isRouted(socket) && SocketPath(of: socket) == .works)
        let pair = try StreamPair()
        #expect(!SocketPath.isRouted(pair.rawValue) && SocketPath(of: pair.rawValue) == .works)
        #expect(!SocketPath.isRouted(-1))
    }

    /// The addresses and routes of another namespace say nothing about it.
    @Test func aSocketOfAnotherNamespaceIsNotJudged() throws {
        let other = try inOwnNetwork {
            try ip("addr add 192.0.2.1/32 dev lo")
            return try connected(from: "192.0.2.1", to: "192.0.2.1")
        }
        defer { close(other) }
        #expect(!SocketPath.isRouted(other) && SocketPath(of: other) == .works)
    }

    /// A datagram socket, which needs nothing at its other end.
    private func connected(from local: String, to peer: String) throws -> CInt {
        let descriptor = socket(AF_INET, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        let isBound = withAddress(local, 0) { bind(descriptor, $0, $1) }
        let isConnected = withAddress(peer, 9) { connect(descriptor, $0, $1) }
        guard isBound == 0, isConnected == 0 else { throw SystemError("bind or connect") }
        return descriptor
    }

    private func withAddress(
        _ host: String, _ port: UInt16, _ body: (UnsafePointer<sockaddr>, socklen_t) -> CInt
    ) -> CInt {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        inet_pton(AF_INET, host, &address.sin_addr)
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                body($0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
    }

    /// Runs `ip` in the namespace of the calling thread.
    private func ip(_ commands: String...) throws {
        for command in commands where ctest_run("ip \(command)") != 0 {
            throw SystemError(code: EINVAL, call: "ip \(command)")
        }
    }

    private func inOwnNetwork<Result: Sendable>(_ body: @escaping @Sendable () throws -> Result) throws
        -> Result
    {
        let outcome = Outcome<Result>()
        let thread = Thread {
            outcome.set(
                Swift.Result {
                    guard ctest_own_network() == 0 else { throw SystemError("unshare") }
                    guard ctest_run("ip link set lo up") == 0 else {
                        throw SystemError(code: EINVAL, call: "ip")
                    }
                    return try body()
                })
        }
        thread.start()
        return try outcome.wait()
    }

    private final class Outcome<Value: Sendable>: @unchecked Sendable {
        // Sendable: guarded by the condition.
        private let condition = NSCondition()
        private var result: Result<Value, any Error>?

        func set(_ result: Result<Value, any Error>) {
            condition.withLock {
                self.result = result
                condition.broadcast()
            }
        }

        func wait() throws -> Value {
            try condition.withLock {
                while result == nil { condition.wait() }
                guard let result else { preconditionFailure("it was waited for") }
                return try result.get()
            }
        }
    }
}
