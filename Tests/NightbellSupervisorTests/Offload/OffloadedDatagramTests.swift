import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import Testing

/// Datagrams are inspected one by one; from the first significant one on, all stay where they are.
@Suite(.timeLimit(.minutes(40))) struct OffloadedDatagramTests {
    private static let options = """
        OPTIONS sip:alice@127.0.0.1:5060 SIP/2.0\r
        Via: SIP/2.0/UDP 127.0.0.1:5070;rport;branch=z9hG4bK4\r
        Max-Forwards: 70\r
        From: <sip:pinger@example.org>;tag=a\r
        To: <sip:alice@example.org>\r
        Call-ID: 1@example.org\r
        CSeq: 7 OPTIONS\r
        Content-Length: 0\r
        \r

        """

    @Test(arguments: [WakeTests.Kind.udp, .connectedUDP]) func optionsAndFillersDoNotWake(
        kind: WakeTests.Kind
    ) throws {
        let scene = try OffloadScene(try kind.make(), .sip)
        try scene.sleep()
        for _ in 0..<4 {
            try scene.pair.send("\0\0\0\0")
            try scene.pair.send(Self.options)
        }
        for _ in 0..<4 {
            var buffer = [UInt8](repeating: 0, count: 2_048)
            #expect(Poll.wait(scene.pair.far, for: .readable, timeoutMilliseconds: 10_000) == .readable)
            let count = recv(scene.pair.far, &buffer, buffer.count, 0)
            let answer = String(decoding: buffer[..<max(0, count)], as: UTF8.self)
            #expect(answer.hasPrefix("SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 127.0.0.1:5070;rport="), "\(answer)")
            #expect(answer.contains("CSeq: 7 OPTIONS\r\n") && answer.hasSuffix("\r\n\r\n"))
        }
        try scene.reaches("answered") { $0.answered == 4 && $0.absorbed == 4 }
        #expect(try scene.info().counters["wakes"] == 0)
        try scene.stop()
    }

    /// A peer that has asked one address of several accepts no answer from another, above all if its socket
    /// is connected.
    @Test(arguments: [("0.0.0.0", "127.0.0.2"), ("::", "127.0.0.3"), ("::", "::1")])
    func answerComesFromTheAddressThatWasAsked(bound: String, asked: String) throws {
        let pair = try Pair.udp(bound: bound, asked: asked)
        let scene = try OffloadScene(pair, .sip)
        try scene.sleep()
        for _ in 0..<2 {
            try scene.pair.send(Self.options)
            #expect(try scene.heardText(14) == "SIP/2.0 200 OK")
        }
        try scene.reaches("answered") { $0.answered == 2 }
        // Its owner finds the socket unchanged.
        let isV6 = bound.contains(":")
        var (value, length): (CInt, socklen_t) = (-1, 4)
        let result = getsockopt(
            pair.near, CInt(isV6 ? IPPROTO_IPV6 : IPPROTO_IP), isV6 ? IPV6_RECVPKTINFO : IP_PKTINFO, &value,
            &length)
        #expect(result == 0 && value == 0)
        try scene.stop()
    }

    /// It came while any peer could send to the socket, and is not for the connection.
    @Test func aDatagramOfAnotherSenderWakes() throws {
        let pair = try Pair.udp(connected: false)
        let stranger = try Pair.udp(bound: "127.0.0.1", asked: "127.0.0.1")
        try stranger.pointFar(at: pair.near)
        try stranger.send(Self.options)
        #expect(Poll.wait(pair.near, for: .readable, timeoutMilliseconds: 10_000) == .readable)
        try pair.connectNear()
        let scene = try OffloadScene(pair, .sip)
        try scene.client.goToSleep()
        #expect(try scene.client.wake().sockets[0].readable)
        #expect(try scene.counters().answered == 0)
        #expect(pair.received().hasPrefix("OPTIONS"))
        try scene.stop()
    }

    @Test func theFirstSignificantDatagramWakesWithAllInOrder() throws {
        let scene = try OffloadScene(try .udp(connected: true), .sip)
        try scene.sleep()
        // Held back until all are there.
        try scene.pair.send("\0\0\0\0")
        try scene.pair.send("INVITE sip:alice@example.org SIP/2.0\r\n\r\n")
        let wake = try scene.client.wake()
        try scene.pair.send("\0\0\0\0")
        try scene.pair.send("second")
        #expect(wake.reasons == [.socket] && wake.sockets[0].readable)
        #expect(scene.pair.received().hasPrefix("INVITE"))
        #expect(scene.pair.received() == "\0\0\0\0")
        #expect(scene.pair.received() == "second")
        #expect(try scene.counters().absorbed == 1)
        try scene.stop()
    }

    @Test func queuedDatagramsAreEachInspected() throws {
        let scene = try OffloadScene(try .udp(connected: true), .sip)
        for text in ["\0\0\0\0", "\r\n\r\n", Self.options, "first", "\0\0\0\0", "last"] {
            try scene.pair.send(text)
        }
        try scene.client.goToSleep()
        let wake = try scene.client.wake()
        #expect(wake.sockets[0].readable)
        #expect(scene.pair.received() == "first")
        #expect(scene.pair.received() == "\0\0\0\0")
        #expect(scene.pair.received() == "last")
        #expect(try scene.counters().answered == 1)
        try scene.stop()
    }

    @Test func floodOfDatagramsWakes() throws {
        let scene = try OffloadScene(try .udp(connected: true), .sip) {
            $0.settings.offload.noiseBurst = 8
            $0.settings.offload.noiseInterval = .seconds(60)
        }
        try scene.sleep()
        for _ in 0..<200 { try scene.pair.send("\0\0\0\0") }
        let wake = try scene.client.wake()
        #expect(wake.sockets[0].readable && wake.sockets[0].flooded)
        #expect(try scene.counters().absorbed == 8)
        #expect(scene.pair.received() == "\0\0\0\0")
        try scene.stop()
    }

    /// Longer than any ping, and wrong lengths: a STUN response that ends early, and one with bytes left
    /// over.
    @Test(arguments: [
        Array("OPTIONS sip:alice@127.0.0.1 SIP/2.0\r\nX: ".utf8) + [UInt8](repeating: 0x78, count: 60_000),
        [1, 1, 0xFF, 0xFC, 0x21, 0x12, 0xA4, 0x42] + [UInt8](repeating: 0, count: 12),
        [1, 1, 0, 0, 0x21, 0x12, 0xA4, 0x42] + [UInt8](repeating: 0, count: 1_000),
    ]) func datagramThatIsNoPingIsTheOwnersWhole(bytes: [UInt8]) throws {
        let scene = try OffloadScene(try .udp(connected: true), .sip)
        try scene.sleep()
        #expect(Glibc.send(scene.pair.far, bytes, bytes.count, 0) == bytes.count)
        let wake = try scene.client.wake()
        #expect(wake.reasons == [.socket] && wake.sockets[0].readable && !wake.sockets[0].flooded)
        var buffer = [UInt8](repeating: 0, count: 65_536)
        let count = recv(scene.pair.near, &buffer, buffer.count, Int32(MSG_DONTWAIT))
        #expect(count == bytes.count && buffer.starts(with: bytes))
        try scene.stop()
    }

    @Test func bindingRequestsAreSentToTheOtherEnd() throws {
        // The shortest interval there is.
        let scene = try OffloadScene(try .udp(connected: true), .make(.stun(.init()), interval: .seconds(15)))
        try scene.sleep()
        let window = try scene.info().sockets[0].offload.nextPingInMs
        #expect((12_000...15_000).contains(window), "\(window)")
        try scene.stop()
    }

    /// They have no destination.
    @Test func unconnectedSocketSendsNone() throws {
        let scene = try OffloadScene(try .udp(connected: false), .sip)
        try scene.sleep()
        #expect(try scene.info().sockets[0].offload.nextPingInMs == 0)
        try scene.stop()
    }
}
