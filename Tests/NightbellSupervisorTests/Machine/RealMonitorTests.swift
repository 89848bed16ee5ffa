import CTestSupport
import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire
import Testing

/// The daemon and the real `nightbell-monitor`, in a network namespace of the test's own.
@Suite(
    .serialized, .timeLimit(.minutes(40)),
    .enabled(if: NetworkNamespace.isPossible, "network namespaces need root"))
struct RealMonitorTests {
    private static let name = "org.example.phone"
    private let network: NetworkNamespace

    init() throws {
        network = try NetworkNamespace()
        try network.addPair()
        try network.ip("address add 192.0.2.7/24 dev v0")
        try network.ip("route add default via 192.0.2.1")
    }

    private func daemon(_ suspension: String, _ flags: String = "") throws -> DaemonProcess {
        try DaemonProcess(
            suspension: suspension, runner: "/usr/bin/nsenter --net='\(network.path)'", flags)
    }

    private func waitForNetwork(_ daemon: DaemonProcess) throws {
        let observer = try WireClient(path: daemon.socketPath)
        let isKnown = try eventually(within: 20_000) {
            try observer.status().sources.first { $0.name == "network" }?.isAvailable == true
        }
        guard isKnown else { throw TestFailure("the network does not become known") }
    }

    @Test(arguments: FaultTests.ways) func aSleepingProcessIsTold(way: String) throws {
        let daemon = try daemon(way)
        let client = try ScriptedClientProcess(path: daemon.socketPath, Self.name, "voip network-changes")
        try waitForNetwork(daemon)
        let observer = try WireClient(path: daemon.socketPath)
        try client.enterBackground()
        try observer.wait(for: Self.name, toBe: .suspended, path: daemon.socketPath)
        #expect(client.heard("network-changed").isEmpty)
        // One change, in steps.
        try network.ip("address del 192.0.2.7/24 dev v0")
        try network.ip("address add 192.0.2.8/24 dev v0")
        try network.ip("route add default via 192.0.2.2")
        #expect(try client.event("wake").contains("reasons=network-changed sockets=-"))
        #expect(try client.event("network-changed") == "network-changed lost=-")
        try observer.wait(for: Self.name, toBe: .suspended, path: daemon.socketPath)
        #expect(client.heard("network-changed").isEmpty)
        #expect(try observer.show(Self.name).counters.counts["wakes"] == 1)
    }

    @Test func theSocketsThatCannotWorkAreNamed() throws {
        let daemon = try daemon("none")
        let descriptor = try socket(from: "192.0.2.7", to: "192.0.2.9")
        defer { close(descriptor) }
        let clients = try ["org.example.asking", "org.example.other"].map { name in
            let client = try WireClient(path: daemon.socketPath)
            try client.hello(name, wantsNetworkChanges: name.hasSuffix("asking"))
            return client
        }
        let tokens = try clients.map { try $0.handOver(descriptor, routed: true) }
        try waitForNetwork(daemon)
        for client in clients { try client.goToSleep() }
        try network.ip("address add 192.0.2.8/24 dev v0")
        let first = try clients[0].wake(within: 20_000)
        #expect(first.reasons == [.networkChanged] && first.sockets.isEmpty)
        try clients[0].finish(first)
        try network.ip("address del 192.0.2.7/24 dev v0")
        let wakes = try clients.map { try $0.wake(within: 20_000) }
        #expect(Set(wakes[0].reasons) == [.networkChanged, .pathLost])
        #expect(wakes[1].reasons == [.pathLost])
        for (wake, token) in zip(wakes, tokens) {
            #expect(wake.sockets.map(\.token) == [token])
            #expect(wake.sockets.first?.pathLost == true)
        }
    }

    @Test func aStoppedMonitorEndsWithItsWorker() throws {
        let daemon = try daemon("none")
        let client = try WireClient(path: daemon.socketPath)
        try client.hello(Self.name, wantsNetworkChanges: true)
        try waitForNetwork(daemon)
        let monitor = try ProcessHandle(
            opening: pid_t(WireClient(path: daemon.socketPath).status().monitorProcessID))
        try monitor.signal(SIGSTOP)
        _ = try daemon.killWorker()
        #expect(eventually { monitor.hasExited })
        try? monitor.signal(SIGKILL)
    }

    @Test func switchedOffItIsNotStarted() throws {
        let daemon = try daemon("none", "--set monitor=off")
        let client = try WireClient(path: daemon.socketPath)
        try client.hello(Self.name, wantsNetworkChanges: true)
        let status = try client.status()
        #expect(status.monitorProcessID == 0 && status.sources.map(\.isAvailable) == [false])
        #expect(status.sources.first?.reason.contains("not observed") == true)
    }

    /// A datagram socket of the namespace.
    private func socket(from local: String, to peer: String) throws -> Int32 {
        try onOwnThread { [path = network.path] in
            guard ctest_enter_network(path) == 0 else { throw Pair.failure("setns") }
            let descriptor = Glibc.socket(AF_INET, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
            for (host, call) in [(local, Glibc.bind), (peer, Glibc.connect)] {
                var address = sockaddr_in()
                address.sin_family = sa_family_t(AF_INET)
                address.sin_port = host == peer ? UInt16(9).bigEndian : 0
                inet_pton(AF_INET, host, &address.sin_addr)
                let done = withUnsafePointer(to: address) { pointer in
                    pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                        call(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
                    }
                }
                guard done == 0 else { throw Pair.failure("bind or connect") }
            }
            return descriptor
        }
    }
}
