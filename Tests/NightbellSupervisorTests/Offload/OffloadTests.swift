import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import Testing

/// Pings are handled without a wake; everything else wakes, complete and in place.
@Suite(.timeLimit(.minutes(40))) struct OffloadTests {
    @Test func pingsAreAnsweredWithoutWaking() throws {
        let scene = try OffloadScene(try .tcp(), .sip)
        try scene.sleep()
        for _ in 0..<5 {
            try scene.pair.send("\r\n\r\n")
            #expect(try scene.heardText(2) == "\r\n")
        }
        try scene.reaches("answered") { $0.answered == 5 && $0.absorbed == 0 }
        let info = try scene.info()
        #expect(info.state == .suspended && info.counters["wakes"] == 0)
        #expect(info.offload == info.sockets[0].offload.counters)
        #expect(info.sockets[0].offload.profile == "sip" && info.sockets[0].offload.active)
        #expect(info.offload.wakesAvoided >= 5)
        #expect(scene.pair.received() == "")
        try scene.stop()
    }

    @Test(arguments: [WakeTests.Kind.tcp, .unix]) func significantMessageWakesOnceAndComplete(
        kind: WakeTests.Kind
    ) throws {
        let scene = try OffloadScene(try kind.make(), .lines())
        try scene.sleep()
        try scene.pair.send("ping\nnop\nping\nnews\nping\n")
        let wake = try scene.client.wake()
        #expect(wake.reasons == [.socket] && wake.sockets.map(\.token) == [scene.token])
        #expect(wake.sockets[0].readable && !wake.sockets[0].flooded)
        #expect(try scene.heardText(10) == "pong\npong\n")
        // Input behind it is its owner's as well.
        #expect(scene.received(10) == "news\nping\n")
        #expect(try scene.counters().answered == 2)
        try scene.sleepAgain(after: wake)
        try scene.pair.send("ping\n")
        #expect(try scene.heardText(5) == "pong\n")
        #expect(try scene.info().counters["wakes"] == 1)
        try scene.stop()
    }

    @Test func unreadNoiseIsNoReasonToWakeAtOnce() throws {
        let scene = try OffloadScene(try .tcp(), .lines())
        try scene.pair.send("ping\n")
        try scene.sleep()
        #expect(try scene.heardText(5) == "pong\n")
        try scene.reaches("answered") { $0.answered == 1 }
        #expect(try scene.info().counters["wakes"] == 0)
        try scene.stop()
    }

    @Test func slowPingIsWaitedForAndThenLeftToTheOwner() throws {
        let scene = try OffloadScene(try .tcp(), .lines()) {
            $0.settings.offload.partialTimeout = .milliseconds(300)
        }
        try scene.sleep()
        for byte in "ping\n" { try scene.pair.send(String(byte)) }
        #expect(try scene.heardText(5) == "pong\n")
        try scene.pair.send("pin")
        let wake = try scene.client.wake()
        #expect(wake.reasons == [.socket] && wake.sockets[0].readable)
        #expect(scene.pair.received() == "pin")
        try scene.stop()
    }

    /// The kernel has reported it, and the owner, woken for another reason, has not read it.
    @Test func aPartialPingLeftByItsOwnerIsInspectedAgain() throws {
        let scene = try OffloadScene(try .tcp(), .lines()) {
            $0.settings.offload.partialTimeout = .seconds(3)
        }
        try scene.sleep()
        try scene.pair.send("nop\npin")
        try scene.reaches("absorbed") { $0.absorbed == 1 }
        var request = WireWakeClient()
        request.identifier = OffloadScene.name
        try scene.observer.ask(.wakeClient(request))
        let wake = try scene.client.wake()
        #expect(wake.reasons == [.request])
        try scene.sleepAgain(after: wake)
        let second = try scene.client.wake()
        #expect(second.reasons == [.socket] && second.sockets.map(\.token) == [scene.token])
        #expect(scene.pair.received() == "pin")
        try scene.stop()
    }

    @Test func awakeClientsAreNotOffloaded() throws {
        let scene = try OffloadScene(try .tcp(), .lines(every: .seconds(1)))
        try scene.pair.send("ping\n")
        try scene.sleep()
        _ = try scene.heard(5)
        try scene.pair.send("news\n")
        let wake = try scene.client.wake()
        try scene.pair.send("ping\n")
        // Asked twice, so that a turn of the loop is over.
        #expect(try !scene.info().sockets[0].offload.active)
        #expect(scene.received(10) == "news\nping\n")
        try scene.client.finish(wake)
        try scene.stop()
    }

    @Test func endBehindNoiseIsReported() throws {
        let scene = try OffloadScene(try .tcp(), .lines())
        try scene.sleep()
        try scene.pair.send("nop\n")
        scene.pair.closeFar()
        let wake = try scene.client.wake()
        #expect(wake.reasons == [.socket] && wake.sockets[0].peerClosed)
        #expect(try scene.info().counters["wakes"] == 1)
        try scene.stop()
    }

    /// It still listens: its pings are answered first.
    @Test(arguments: [WakeTests.Kind.tcp, .unix]) func aHalfClosedPeerIsAnsweredAndReported(
        kind: WakeTests.Kind
    ) throws {
        let scene = try OffloadScene(try kind.make(), .lines())
        try scene.sleep()
        try scene.pair.send("nop\nping\n")
        shutdown(scene.pair.far, Int32(SHUT_WR))
        let wake = try scene.client.wake()
        #expect(wake.reasons == [.socket] && wake.sockets[0].peerClosed && !wake.sockets[0].hangUp)
        #expect(try scene.heardText(5) == "pong\n")
        #expect(try scene.counters().answered == 1 && scene.pair.received() == "")
        try scene.stop()
    }

    /// Reading the end of such a socket returns an empty packet, again and again.
    @Test(arguments: [SOCK_SEQPACKET, SOCK_DGRAM].map { Int($0.rawValue) })
    func endOfPacketsIsNoNoise(type: Int) throws {
        let scene = try OffloadScene(try .unix(__socket_type(UInt32(type))), .sip)
        try scene.sleep()
        try scene.pair.send("\0\0\0\0")
        try scene.reaches("absorbed") { $0.absorbed == 1 }
        guard type == Int(SOCK_SEQPACKET.rawValue) else {
            // Closing the other end of a datagram socket is not reported; the owner may have shut it down
            // itself.
            shutdown(scene.pair.near, Int32(SHUT_RD))
            let wake = try scene.client.wake()
            #expect(wake.sockets[0].peerClosed && !wake.sockets[0].flooded)
            #expect(try scene.counters().absorbed == 1)
            return try scene.stop()
        }
        shutdown(scene.pair.far, Int32(SHUT_WR))
        let wake = try scene.client.wake()
        #expect(wake.sockets[0].peerClosed && !wake.sockets[0].flooded)
        #expect(try scene.counters().absorbed == 1)
        try scene.stop()
    }

    /// The kernel returns the bytes before urgent data separately, and forgets the mark when they are
    /// skipped.
    @Test(arguments: ["nop\n", ""]) func urgentDataIsTheOwners(before: String) throws {
        let scene = try OffloadScene(try .tcp(), .lines())
        let far = scene.pair.far
        if !before.isEmpty { try scene.pair.send(before) }
        #expect(Glibc.send(far, "!", 1, Int32(MSG_OOB)) == 1)
        try scene.pair.send("nop\n")
        var urgent: UInt8 = 0
        let look = Int32(MSG_OOB | MSG_PEEK | MSG_DONTWAIT)
        try #require(eventually { recv(scene.pair.near, &urgent, 1, look) == 1 })
        try scene.client.goToSleep()
        let wake = try scene.client.wake()
        #expect(wake.reasons == [.socket] && wake.sockets[0].readable)
        #expect(recv(scene.pair.near, &urgent, 1, Int32(MSG_OOB | MSG_DONTWAIT)) == 1)
        #expect(urgent == UInt8(ascii: "!") && scene.received(4) == "nop\n")
        #expect(try scene.counters().absorbed == (before.isEmpty ? 0 : 1))
        try scene.stop()
    }

    /// The mark of urgent data stays after that has been read, and the kernel returns the bytes behind it
    /// separately, too.
    @Test(arguments: [true, false]) func inputBehindUrgentDataIsTheOwners(isLocal: Bool) throws {
        let scene = try OffloadScene(isLocal ? try .unix(SOCK_STREAM) : try .tcp(), .lines())
        try scene.pair.send("nop\n")
        #expect(Glibc.send(scene.pair.far, "!", 1, Int32(MSG_OOB)) == 1)
        try scene.pair.send("news\n")
        var urgent: UInt8 = 0
        let take = Int32(MSG_OOB | MSG_DONTWAIT)
        try #require(eventually { recv(scene.pair.near, &urgent, 1, take) == 1 })
        try scene.client.goToSleep()
        let wake = try scene.client.wake()
        #expect(wake.reasons == [.socket] && wake.sockets[0].readable)
        #expect(scene.received(5) == "news\n")
        #expect(try scene.counters().absorbed == 1)
        try scene.stop()
    }

    /// Input of a socket that is known to have no urgent data is not searched for it: the kernel has to
    /// report it.
    @Test(arguments: [true, false], ["", "nop\n"]) func urgentDataThatArrivesLaterIsTheOwners(
        isLocal: Bool, before: String
    ) throws {
        let scene = try OffloadScene(isLocal ? try .unix(SOCK_STREAM) : try .tcp(), .lines())
        try scene.sleep()
        for count in 1...3 as ClosedRange<UInt64> {
            try scene.pair.send("nop\n")
            try scene.reaches("absorbed") { $0.absorbed == count }
        }
        if !before.isEmpty { try scene.pair.send(before) }
        #expect(Glibc.send(scene.pair.far, "!", 1, Int32(MSG_OOB)) == 1)
        try scene.pair.send("nop\n")
        let wake = try scene.client.wake()
        #expect(wake.reasons == [.socket] && wake.sockets[0].readable)
        var urgent: UInt8 = 0
        #expect(recv(scene.pair.near, &urgent, 1, Int32(MSG_OOB | MSG_DONTWAIT)) == 1)
        #expect(urgent == UInt8(ascii: "!"))
        #expect(scene.received(4) == "nop\n")
        #expect(try scene.counters().absorbed == (before.isEmpty ? 3 : 4))
        try scene.stop()
    }

    /// Consuming bytes consumes the descriptors that come with them.
    @Test(arguments: [SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM].map { Int($0.rawValue) })
    func noiseThatBringsADescriptorIsTheOwners(type: Int) throws {
        let scene = try OffloadScene(try .unix(__socket_type(UInt32(type))), .lines())
        try scene.sleep()
        try scene.pair.send("ping\n")
        #expect(try scene.heardText(5) == "pong\n")
        let sent = try SeqPacketSocket(adopting: OwnedDescriptor(adopting: dup(scene.pair.far)))
            .send(Array("nop\n".utf8), descriptors: [scene.pair.far])
        #expect(sent)
        let wake = try scene.client.wake()
        #expect(wake.reasons == [.socket] && wake.sockets[0].readable)
        let near = SeqPacketSocket(adopting: OwnedDescriptor(adopting: dup(scene.pair.near)))
        var packet = PacketBuffer()
        guard case .packet(4, _, _) = try near.receive(into: &packet) else { throw TestFailure("no packet") }
        #expect(packet.descriptorCount == 1)
        #expect(try scene.counters().absorbed == 0)
        try scene.stop()
    }

    @Test func resetIsReportedWithItsError() throws {
        let scene = try OffloadScene(try .tcp(), .lines())
        try scene.sleep()
        scene.pair.reset()
        let wake = try scene.client.wake()
        #expect(wake.sockets[0].error && !wake.sockets[0].pathLost)
        #expect(SocketOptionOfError.value(of: scene.pair.near) == ECONNRESET)
        try scene.stop()
    }

    @Test func halvesOfAPingAreOnePing() throws {
        let scene = try OffloadScene(try .tcp(), .sip)
        try scene.sleep()
        for (first, second) in [("\r", "\n\r\n"), ("\r\n", "\r\n"), ("\r\n\r", "\n")] {
            try scene.pair.send(first)
            #expect(Poll.wait(scene.pair.far, for: .readable, timeoutMilliseconds: 100).isEmpty)
            try scene.pair.send(second)
            #expect(try scene.heardText(2) == "\r\n")
        }
        try scene.reaches("answered") { $0.answered == 3 && $0.absorbed == 0 }
        #expect(try scene.info().counters["wakes"] == 0)
        try scene.stop()
    }

    @Test func singleLineEndsWakeOnce() throws {
        let scene = try OffloadScene(try .tcp(), .sip) {
            $0.settings.offload.partialTimeout = .milliseconds(200)
        }
        try scene.sleep()
        try scene.pair.send("\r\n")
        let wake = try scene.client.wake()
        #expect(wake.sockets[0].readable && scene.received(2) == "\r\n")
        try scene.sleepAgain(after: wake)
        for count in 1...2 {
            try scene.pair.send("\r\n")
            try scene.reaches("absorbed") { $0.absorbed + $0.answered == UInt64(count) }
        }
        #expect(try scene.info().counters["wakes"] == 1)
        try scene.stop()
    }

    // MARK: Pings of our own

    @Test func pingsAreSentInTime() throws {
        let scene = try OffloadScene(try .tcp(), .lines(every: .seconds(1), answerWithin: .milliseconds(500)))
        try scene.sleep()
        let start = BootClock.now()
        for _ in 0..<3 {
            #expect(try scene.heardText(5) == "PING\n")
            try scene.pair.send("PONG\n")
        }
        let seconds = Double(BootClock.now() - start) / 1e9
        // Each within the last fifth of its second.
        #expect(seconds > 2.2 && seconds < 3.5, "\(seconds)")
        try scene.reaches("confirmed") { $0.sent == 3 && $0.confirmed == 3 }
        #expect(try scene.info().counters["wakes"] == 0)
        try scene.stop()
    }

    @Test func aMissingAnswerHasAReasonOfItsOwn() throws {
        let scene = try OffloadScene(try .tcp(), .lines(every: .seconds(1), answerWithin: .milliseconds(300)))
        try scene.sleep()
        _ = try scene.heard(5)
        let wake = try scene.client.wake()
        #expect(wake.reasons == [.unanswered])
        #expect(wake.sockets.map(\.token) == [scene.token] && wake.sockets[0].unanswered)
        #expect(!wake.sockets[0].readable)
        #expect(try scene.info().counters["wakes_path_lost"] == 1)
        try scene.stop()
    }

    @Test(arguments: [WakeTests.Kind.tcp, .unix]) func aPeerThatReadsNothingIsReported(
        kind: WakeTests.Kind
    ) throws {
        let scene = try OffloadScene(try kind.make(), .lines())
        scene.pair.fillFarEnd()
        try scene.sleep()
        try scene.pair.send("nop\nping\n")
        let wake = try scene.client.wake()
        #expect(wake.reasons == [.socket] && wake.sockets[0].unanswerable)
        // No ping was consumed that could not be answered.
        #expect(scene.pair.received().hasSuffix("ping\n"))
        try scene.stop()
    }

    /// Its own pings stay unsent as well, and that is reported before an answer could be missed.
    @Test(arguments: [WakeTests.Kind.tcp, .unix]) func anUnreadPingIsReported(
        kind: WakeTests.Kind
    ) throws {
        let scene = try OffloadScene(
            try kind.make(), .lines(every: .seconds(1), answerWithin: .milliseconds(500)))
        scene.pair.fillFarEnd()
        try scene.sleep()
        let wake = try scene.client.wake()
        #expect(wake.reasons == [.socket] && wake.sockets.map(\.token) == [scene.token])
        #expect(wake.sockets[0].unanswerable && !wake.sockets[0].readable)
        let counters = try scene.counters()
        #expect(counters.sent == 0 && counters.wakesAvoided == 0)
        try scene.stop()
    }

    // MARK: Too much

    @Test func floodWakes() throws {
        let scene = try OffloadScene(try .tcp(), .lines()) {
            $0.settings.offload.noiseBurst = 8
            $0.settings.offload.noiseInterval = .seconds(60)
        }
        try scene.sleep()
        try scene.pair.send(String(repeating: "nop\n", count: 1_000))
        let wake = try scene.client.wake()
        #expect(wake.sockets[0].flooded)
        #expect(try scene.counters().absorbed <= 8)
        try scene.stop()
    }

    @Test func lineWithoutEndWakesSoon() throws {
        let scene = try OffloadScene(try .tcp(), .sip)
        try scene.sleep()
        try scene.pair.send("OPTIONS " + String(repeating: "x", count: 100_000))
        let wake = try scene.client.wake()
        #expect(wake.reasons == [.socket] && wake.sockets[0].readable)
        try scene.stop()
    }

    // MARK: Clients that have not answered

    @Test func suspendedByForceIsWokenByEverything() throws {
        let scene = try OffloadScene(try .tcp(), .lines())
        try scene.client.enterBackground()
        _ = try scene.client.prepare()
        try scene.observer.wait(for: OffloadScene.name, toBe: .suspended, scene.supervisor)
        try scene.pair.send("ping\n")
        _ = try scene.client.wake()
        #expect(scene.pair.received() == "ping\n")
        try scene.stop()
    }
}

extension Pair {
    /// Until nothing more can be sent on the near side.
    fileprivate func fillFarEnd() {
        let junk = [UInt8](repeating: 0x2E, count: 4_096)
        _ = eventually {
            while Glibc.send(near, junk, junk.count, Int32(MSG_DONTWAIT)) > 0 {}
            // The kernel moves bytes to the other end in the meantime.
            return Poll.wait(near, for: .writable, timeoutMilliseconds: 200).isEmpty
        }
        while Glibc.send(near, junk, 1, Int32(MSG_DONTWAIT)) > 0 {}
    }
}

enum SocketOptionOfError {
    static func value(of descriptor: Int32) -> Int32 {
        var code: Int32 = 0
        var length = socklen_t(MemoryLayout<Int32>.size)
        getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &length)
        return code
    }
}
