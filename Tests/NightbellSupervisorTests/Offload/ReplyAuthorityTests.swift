import CTestSupport
import EdgeTestSupport
import Glibc
import LinuxSystem
import NightbellWire
import Testing

/// A supervisor has more rights than its clients: the sockets on which it may send in their name.
@Suite(.timeLimit(.minutes(40))) struct ReplyAuthorityTests {
    private static func refusal(
        _ client: WireClient, _ socket: Int32, _ profile: WireProfile = .lines(every: .seconds(60))
    ) throws -> WireError? {
        do {
            _ = try client.handOver(socket, profile: profile)
            return nil
        } catch let error as WireError {
            return error
        }
    }

    /// Its packets carry its own credentials, which other users do not have.
    @Test func otherUsersSocketsMustBeTCPOrUDP() throws {
        let daemon = try DaemonProcess(suspension: "none", before: "umask 0")
        let path = daemon.socketPath
        try OwnThread {
            guard ctest_become(65_534) == 0 else { throw TestFailure("cannot become another user") }
            let client = try WireClient(path: path)
            try client.hello("org.example.stranger")
            for pair in [try Pair.tcp(), try .udp(connected: true), try .udp(connected: false)] {
                #expect(try Self.refusal(client, pair.near) == nil)
            }
            for pair in [try Pair.unix(), try .unix(SOCK_DGRAM), try .unix(SOCK_SEQPACKET)] {
                let error = try #require(try Self.refusal(client, pair.near))
                #expect(error.code == .profileNotForThis && error.message.contains("own user"))
            }
            try Self.expectNetlinkIsRefused(client)
        }.join()
        let ours = try WireClient(path: path)
        try ours.hello("org.example.ours")
        let pair = try Pair.unix()
        #expect(try Self.refusal(ours, pair.near) == nil)
        try Self.expectNetlinkIsRefused(ours)
    }

    /// The kernel would comply, because the supervisor asks.
    private static func expectNetlinkIsRefused(_ client: WireClient) throws {
        let netlink = socket(AF_NETLINK, CInt(SOCK_RAW.rawValue | SOCK_CLOEXEC.rawValue), 0)
        defer { close(netlink) }
        let error = try #require(try refusal(client, netlink))
        #expect(error.code == .profileNotForThis && error.message.contains("TCP, UDP and Unix sockets"))
    }

    @Test func aSocketThatCannotBeInspectedIsRefused() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let alone = socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        defer { close(alone) }
        #expect(try Self.refusal(client, alone)?.message.contains("that are connected") == true)
        var cases: [(pair: Pair, SocketOption, value: Int32, String)] = []
        cases.append((try .tcp(), .peekOffset, 0, "SO_PEEK_OFF"))
        cases.append((try .unix(), .peekOffset, 7, "SO_PEEK_OFF"))
        cases.append((try .udp(connected: true), .joinsDatagrams, 1, "UDP_GRO"))
        cases.append((try .tcp(), .lowWaterMark, 100, "SO_RCVLOWAT"))
        for (pair, option, value, name) in cases {
            // Some kernels lack these for some sockets.
            guard option.set(value, on: pair.near) else { continue }
            let error = try #require(try Self.refusal(client, pair.near), "\(name)")
            #expect(error.code == .profileNotForThis && error.message.contains(name), "\(error.message)")
        }
        try supervisor.stop()
    }
}
