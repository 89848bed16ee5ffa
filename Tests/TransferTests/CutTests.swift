import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing
import TransferClient
import TransferWire

/// Connections that end as those of a machine on the move: without a word, or by a box on the way.
@Suite("Cut connections", .enabled(if: CutNetwork.isPossible), .timeLimit(.minutes(10)))
struct CutTests {
    private static let size = 6_000_000
    /// The kernel's buffers on both sides, which the server's log counts as sent.
    private static let buffers = 600_000

    private func receivedBytes(_ client: TransferClient) throws -> Int64 {
        Int64(try client.request { $0.list.after = 0 }.tasks.first?.receivedBytes ?? 0)
    }

    @Test(
        "A download goes on where the network has failed, and nothing is left behind",
        arguments: CutNetwork.Fault.allCases)
    func download(fault: CutNetwork.Fault) throws {
        let network = try CutNetwork()
        let server = try Nginx(rate: "3m", in: network.server, at: CutNetwork.address)
        let bytes = randomBytes(Self.size)
        try server.add("file", bytes)
        let process = try TransferProcess(["--stall", "2"], in: network.client)
        let client = try process.open()
        let task = try client.add(server.address + "/file") { $0.wantsDigest = true }
        #expect(try eventually(within: 30_000) { try receivedBytes(client) > 1_000_000 })

        try network.begin(fault)
        switch fault {
        case .silence:
            // It has noticed by itself, and tries again.
            #expect(try eventually(within: 30_000) { try !network.connections("syn-sent").isEmpty })
        case .reset:
            #expect(try eventually(within: 30_000) { try network.connections("established").isEmpty })
        case .loss:
            #expect(try eventually(within: 60_000) { try receivedBytes(client) > 2_000_000 })
        }
        try network.end(fault)

        let (result, file) = try client.nextResult()
        #expect(result.failure == .none && result.bytes == Self.size, "\(result)")
        let expected = digest(bytes)
        #expect(Array(result.digest) == expected)
        #expect(try require(file).digest() == expected)
        try client.release(task)
        try checkLog(of: server, after: fault)
        #expect(eventually { (try? SmallFile.names(in: process.data + "/sessions/1")) == [] })
    }

    /// The whole was asked for once, and then what was missing.
    private func checkLog(of server: Nginx, after fault: CutNetwork.Fault) throws {
        // A response that was cut is logged once the server has noticed that.
        let isComplete = eventually(within: 60_000) {
            server.log.contains { $0.status == 200 }
                && server.log.reduce(0) { $0 + $1.bytes } >= Self.size
        }
        let statuses = server.log.map(\.status).sorted()
        #expect(isComplete && statuses.first == 200, "\(server.log)")
        #expect(statuses.dropFirst().allSatisfy { $0 == 206 }, "\(server.log)")
        #expect(fault == .loss || statuses.count >= 2, "\(server.log)")
        let sent = server.log.reduce(0) { $0 + $1.bytes }
        #expect(sent <= Self.size + (statuses.count - 1) * Self.buffers, "\(server.log)")
    }
}
