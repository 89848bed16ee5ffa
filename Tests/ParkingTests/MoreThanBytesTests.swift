import EdgeTestSupport
import Glibc
import LinuxSystem
import NightbellCore
import NightbellParking
import Testing

/// Data that looks like noise to a profile and is not, or is more than that.
@Suite(.timeLimit(.minutes(40))) struct MoreThanBytesTests {
    private static func lines() throws -> ParkingProfile {
        try .bytes([
            .init(Array("ping\n".utf8), reply: Array("pong\n".utf8)), .init(Array("nop\n".utf8)),
        ])
    }

    /// The kernel returns data before urgent data by itself, and drops skipped urgent data.
    @Test(arguments: ["nop\n", ""]) func urgentDataIsTheHosts(before: String) throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        if !before.isEmpty { try pair.say(before) }
        try #require(send(pair.far, "!", 1, CInt(MSG_OOB)) == 1)
        try pair.say("nop\n")
        var urgent: UInt8 = 0
        let look = CInt(MSG_OOB | MSG_PEEK | MSG_DONTWAIT)
        try #require(eventually { recv(pair.near, &urgent, 1, look) == 1 })
        let token = try host.supervisor.park(pair.near, profile: try Self.lines())
        #expect(try host.next() == [ParkedEvent(token, .readable)])
        let claimed = try host.supervisor.claim(token)
        defer { close(claimed.descriptor) }
        #expect(recv(claimed.descriptor, &urgent, 1, CInt(MSG_OOB | MSG_DONTWAIT)) == 1)
        #expect(urgent == UInt8(ascii: "!"))
        #expect(try read(4, from: claimed.descriptor) == Array("nop\n".utf8))
        #expect(host.supervisor.counters.pings.absorbed == (before.isEmpty ? 0 : 1))
    }

    /// The mark of urgent data stays when that has been read, and the kernel returns data behind it by
    /// itself, too.
    @Test(arguments: [true, false]) func dataBehindUrgentDataIsTheHosts(isLocal: Bool) throws {
        let host = try Hosted()
        let pair = isLocal ? try Pair.unix(SOCK_STREAM) : try Pair.tcp()
        try pair.say("nop\n")
        try #require(send(pair.far, "!", 1, CInt(MSG_OOB)) == 1)
        try pair.say("news\n")
        var urgent: UInt8 = 0
        let take = CInt(MSG_OOB | MSG_DONTWAIT)
        try #require(eventually { recv(pair.near, &urgent, 1, take) == 1 })
        let token = try host.supervisor.park(pair.near, profile: try Self.lines())
        #expect(try host.next() == [ParkedEvent(token, .readable)])
        let claimed = try host.supervisor.claim(token)
        defer { close(claimed.descriptor) }
        #expect(try read(5, from: claimed.descriptor) == Array("news\n".utf8))
        #expect(host.supervisor.counters.pings.absorbed == 1)
    }

    /// Reading the bytes also takes their ancillary data.
    @Test(arguments: [SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM].map { Int($0.rawValue) })
    func noiseThatBringsADescriptorIsTheHosts(type: Int) throws {
        let host = try Hosted()
        let pair = try Pair.unix(__socket_type(UInt32(type)))
        let token = try host.supervisor.park(pair.near, profile: try Self.lines())
        try pair.say("ping\n")
        #expect(host.isQuiet())
        #expect(try pair.hear(5) == Array("pong\n".utf8))
        let far = SeqPacketSocket(adopting: OwnedDescriptor(adopting: dup(pair.far)))
        try #require(try far.send(Array("nop\n".utf8), descriptors: [pair.far]))
        #expect(try host.next() == [ParkedEvent(token, .readable)])
        let claimed = try host.supervisor.claim(token)
        let near = SeqPacketSocket(adopting: OwnedDescriptor(adopting: claimed.descriptor))
        var packet = PacketBuffer()
        let reception = try near.receive(into: &packet)
        guard case .packet(4, _, _) = reception else {
            Issue.record("no packet, but \(reception)")
            return
        }
        #expect(packet.descriptorCount == 1)
        #expect(host.supervisor.counters.pings.absorbed == 0)
    }

    /// To a reader, the end of such a socket looks like an empty packet, again and again.
    @Test func endOfPacketsIsNoNoise() throws {
        let host = try Hosted()
        let pair = try Pair.unix(SOCK_SEQPACKET)
        let token = try host.supervisor.park(pair.near, profile: .sip())
        try pair.say([0, 0, 0, 0])
        #expect(host.isQuiet())
        #expect(host.supervisor.counters.pings.absorbed == 1)
        shutdown(pair.far, CInt(SHUT_WR))
        let event = try #require(try host.next().first)
        #expect(event.token == token && event.reasons.contains(.peerClosed))
        #expect(!event.reasons.contains(.flooded))
        #expect(host.supervisor.counters.pings.absorbed == 1)
    }

    @Test func keepAlivesOfTCPAreForTCP() throws {
        let host = try Hosted()
        let pair = try Pair.unix()
        let error = #expect(throws: EmbeddedError.self) {
            try host.supervisor.park(pair.near, profile: .tcp())
        }
        #expect(error?.code == .profile && host.supervisor.counters.sockets == 0)
        close(pair.near)
    }
}
