import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing
import TransferClient
import TransferWire

/// Good moments by the real monitor, with the real network of a namespace and a mocked UPower.
@Suite("Moments of transfers", .enabled(if: NetworkNamespace.isPossible), .timeLimit(.minutes(10)))
struct MomentTests {
    private static let size = 4_000_000
    private static let address = "192.0.2.7"
    private let network: NetworkNamespace
    private let server: Nginx
    private let bytes = randomBytes(size)

    init() throws {
        network = try NetworkNamespace()
        try network.addPair()
        try network.ip("link set lo up")
        try network.ip("address add \(Self.address)/24 dev v0")
        try network.ip("route add default via 192.0.2.1")
        server = try Nginx(rate: "1m", in: network, at: Self.address)
        try server.add("file", bytes)
        try server.add("issue", bytes)
    }

    private func supervisor(_ power: MockPower) throws -> Supervised {
        try Supervised(
            ["monitor=auto", "discretionary.patience=1s"],
            environment: ["DBUS_SYSTEM_BUS_ADDRESS": power.busAddress], in: network,
            manifest: { directory in
                """
                identifier: org.test.reader
                modes: [newsstand]
                user: "\(Supervised.user)"
                directory: /
                command: [\(try product("scripted-client"))]
                environment:
                    CLIENT_CONTROL: \(directory)/own/org.test.reader.control
                newsstand: {url: "\(server.address)/issue", every: 1d}
                """
            })
    }

    private func isObserved(_ supervisor: Supervised) throws -> Bool {
        let status = try supervisor.nightbell("status")
        return ["power", "network"].allSatisfy { name in
            status.split(separator: "\n").contains { $0.contains(name) && $0.hasSuffix("known") }
        }
    }

    @Test("Transfers and issues that can wait stop on battery, and go on with mains power")
    func power() throws {
        let power = try MockPower(isOnBattery: true)
        let supervisor = try supervisor(power)
        let reader = try SupervisedClient(awaiting: "org.test.reader", of: supervisor)
        let client = try SupervisedClient(supervisor, "org.test.other")
        try client.command("transfers s")
        let path = "\(supervisor.directory.path)/run/transfers/\(Supervised.user)"
        let transfers = try TransferClient(path: path)
        try transfers.open(client: "org.test.other", "s")
        try transfers.add(server.address + "/file") {
            $0.isDiscretionary = true
            $0.wantsDigest = true
        }
        #expect(try eventually(within: 30_000) { try isObserved(supervisor) })
        #expect(try transfers.next(within: 2_000) == nil)
        #expect(server.log.isEmpty)

        try power.set(isOnBattery: false)
        #expect(try eventually(within: 30_000) { try received(transfers) > 500_000 })
        try power.set(isOnBattery: true)
        // Both are cut.
        #expect(
            eventually(within: 30_000) {
                server.log.count == 2 && server.log.allSatisfy { $0.status == 200 }
            },
            "\(server.log)")
        #expect(try transfers.request { $0.list.after = 0 }.tasks.first?.state == .waiting)
        #expect(!reader.isCalled)

        try power.set(isOnBattery: false)
        let (result, _) = try transfers.nextResult()
        #expect(result.failure == .none && Array(result.digest) == digest(bytes))
        try reader.accept()
        try reader.command("hello org.test.reader newsstand")
        try reader.tell("transfers newsstand")
        let line = try reader.event("transferred newsstand issue")
        #expect(line.contains(" bytes=\(Self.size) sha=\(hexadecimal(digest(bytes))) "), "\(line)")
        #expect(server.log.dropFirst(2).allSatisfy { $0.status == 206 }, "\(server.log)")
    }

    private func received(_ client: TransferClient) throws -> Int64 {
        Int64(try client.request { $0.list.after = 0 }.tasks.first?.receivedBytes ?? 0)
    }
}
