import Glibc
import NightbellCore
import NightbellParking
import Testing

/// Parked sockets as seen by their host.
@Suite(.timeLimit(.minutes(40))) struct ParkingTests {
    private static let state = Array("thirty-two bytes of a session ..".utf8)

    @Test func trafficIsToldAndEverythingComesBack() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        let token = try host.supervisor.park(pair.near, state: Self.state)
        #expect(host.isQuiet())
        try pair.say("hello")
        #expect(try host.next() == [ParkedEvent(token, .readable)])
        let claimed = try host.supervisor.claim(token)
        #expect(claimed.descriptor == pair.near && claimed.state == Self.state && claimed.token == token)
        #expect(try read(5, from: claimed.descriptor) == Array("hello".utf8))
        close(claimed.descriptor)
        #expect(host.supervisor.counters.sockets == 0 && host.supervisor.counters.stateBytes == 0)
    }

    @Test func bytesThatWereThereAlreadyAreToldAtOnce() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        try pair.say("early")
        let token = try host.supervisor.park(pair.near)
        #expect(try host.next() == [ParkedEvent(token, .readable)])
    }

    @Test func aSocketThatIsNotClaimedIsReportedOnce() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        let token = try host.supervisor.park(pair.near)
        try pair.say("one")
        #expect(try host.next().count == 1)
        try pair.say("two")
        shutdown(pair.far, CInt(SHUT_WR))
        #expect(host.isQuiet())
        let claimed = try host.supervisor.claim(token)
        #expect(try read(6, from: claimed.descriptor) == Array("onetwo".utf8))
        // Parked again, the rest is reported again.
        let again = try host.supervisor.park(claimed.descriptor)
        #expect(again != token)
        #expect(try host.next() == [ParkedEvent(again, [.readable, .peerClosed])])
    }

    @Test func aClaimedSocketIsNotReportedAnyMore() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        let token = try host.supervisor.park(pair.near)
        try pair.say("late")
        let claimed = try host.supervisor.claim(token)
        defer { close(claimed.descriptor) }
        #expect(host.isQuiet())
        #expect(throws: EmbeddedError.self) { try host.supervisor.claim(token) }
        #expect(throws: EmbeddedError.self) { try host.supervisor.release(token) }
    }

    @Test func aTokenNeverNamesAnotherSocket() throws {
        let host = try Hosted()
        let (first, second) = (try Pair.tcp(), try Pair.tcp())
        let old = try host.supervisor.park(first.near)
        try host.supervisor.release(old)
        let new = try host.supervisor.park(second.near)
        #expect(old != new)
        let error = #expect(throws: EmbeddedError.self) { try host.supervisor.claim(old) }
        #expect(error?.code == .unknownToken)
        #expect(try host.supervisor.claim(new).descriptor == second.near)
        close(second.near)
    }

    // MARK: Ends

    @Test func halfCloseIsToldAndTheOtherHalfWorks() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        let token = try host.supervisor.park(pair.near)
        try pair.say("bye")
        shutdown(pair.far, CInt(SHUT_WR))
        #expect(try host.next() == [ParkedEvent(token, [.readable, .peerClosed])])
        let claimed = try host.supervisor.claim(token)
        defer { close(claimed.descriptor) }
        #expect(try read(3, from: claimed.descriptor) == Array("bye".utf8))
        #expect(send(claimed.descriptor, "bye", 3, 0) == 3)
        #expect(try pair.hear(3) == Array("bye".utf8))
    }

    @Test(arguments: [false, true]) func aResetIsTold(hasProfile: Bool) throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        let profile = hasProfile ? try ParkingProfile.webSocket(isServer: true) : nil
        let token = try host.supervisor.park(pair.near, profile: profile)
        try pair.reset()
        let event = try #require(try host.next().first)
        #expect(event.token == token && event.reasons.contains(.broken))
        // The error is still there for the reader.
        let claimed = try host.supervisor.claim(token)
        defer { close(claimed.descriptor) }
        var byte: UInt8 = 0
        #expect(recv(claimed.descriptor, &byte, 1, 0) == -1 && errno == ECONNRESET)
    }

    @Test func releaseClosesTheSocket() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        try host.supervisor.release(try host.supervisor.park(pair.near))
        #expect(try pair.hear(1) == [])
        #expect(host.supervisor.counters.parking.released == 1)
    }

    // MARK: Refusals

    @Test func aSocketThatCannotBeParkedStaysTheCallers() throws {
        let host = try Hosted { configuration in
            configuration.stateLimit = 4
            configuration.socketLimit = 1
        }
        func code(_ body: () throws -> Void) -> EmbeddedError.Code? {
            #expect(throws: EmbeddedError.self) { try body() }?.code
        }
        let (pair, other) = (try Pair.tcp(), try Pair.tcp())
        let file = open("/dev/null", O_RDONLY | O_CLOEXEC)
        defer { close(file) }
        #expect(code { _ = try host.supervisor.park(file) } == .notWatchable)
        #expect(code { _ = try host.supervisor.park(-1) } == .notWatchable)
        #expect(code { _ = try host.supervisor.park(pair.near, state: [0, 1, 2, 3, 4]) } == .stateTooLarge)
        let profile = try ParkingProfile.webSocket(isServer: true)
        #expect(code { _ = try host.supervisor.park(file, profile: profile) } == .profile)
        let token = try host.supervisor.park(pair.near, state: [0, 1, 2, 3])
        #expect(code { _ = try host.supervisor.park(other.near) } == .tooManySockets)
        #expect(host.supervisor.counters.parking.parked == 1 && isOpen(other.near))
        #expect(code { _ = try ParkingProfile.webSocket(isServer: true, interval: .seconds(1)) } == .profile)
        try host.supervisor.release(token)
        close(other.near)
    }

    @Test func twiceIsRefused() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        let token = try host.supervisor.park(pair.near)
        let error = #expect(throws: EmbeddedError.self) { try host.supervisor.park(pair.near) }
        #expect(error?.code == .alreadyParked)
        try pair.say("still")
        #expect(try host.next() == [ParkedEvent(token, .readable)])
    }

    // MARK: Time

    @Test func keepAliveIsDueInsideItsWindowWithOthers() throws {
        let host = try Hosted { configuration in
            configuration.lead = .milliseconds(50)
            configuration.keepAliveTolerance = 0.5
        }
        let (first, second) = (try Pair.tcp(), try Pair.tcp())
        let start = ContinuousClock.now
        let one = try host.supervisor.park(first.near, keepAlive: .milliseconds(400))
        let two = try host.supervisor.park(second.near, keepAlive: .milliseconds(600))
        let events = try host.next()
        let waited = ContinuousClock.now - start
        #expect(Set(events) == [ParkedEvent(one, .keepAliveDue), ParkedEvent(two, .keepAliveDue)])
        #expect(waited >= .milliseconds(300))
        // It is still watched.
        try first.say("and now traffic")
        #expect(try host.next() == [ParkedEvent(one, .readable)])
    }

    // MARK: Writing without claiming

    @Test func sendsAsMuchAsThereIsRoomFor() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        let token = try host.supervisor.park(pair.near)
        #expect(try host.supervisor.send(Array("news".utf8), to: token) == 4)
        #expect(try pair.hear(4) == Array("news".utf8))
        let flood = [UInt8](repeating: 7, count: 64 << 20)
        let taken = try host.supervisor.send(flood, to: token)
        #expect(taken > 0 && taken < flood.count)
        #expect(host.isQuiet())
    }

    /// The caller of `send` keeps the rest of an incomplete message: nothing is written into the middle of
    /// it.
    @Test func nothingIsWrittenIntoTheMiddleOfAMessage() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        let token = try host.supervisor.park(pair.near, state: [3])
        let flood = (0..<16 << 20).map { UInt8(truncatingIfNeeded: $0 >> 8) }
        let taken = try host.supervisor.send(flood, to: token)
        try #require(taken > 0 && taken < flood.count)
        // The buffer has room again.
        #expect(try pair.hear(taken) == Array(flood[..<taken]))
        #expect(try host.supervisor.send(Array("news".utf8), to: token) == 0)
        #expect(try host.supervisor.sendOrClaim([], to: token)?.bytes == nil)
        let rest = try #require(try host.supervisor.sendOrClaim(Array("news".utf8), to: token))
        defer { close(rest.socket.descriptor) }
        #expect(rest.bytes == Array("news".utf8) && rest.socket.state == [3])
        #expect(rest.socket.isInsideMessage)
        var byte: UInt8 = 0
        #expect(recv(pair.far, &byte, 1, CInt(MSG_DONTWAIT)) == -1 && errno == EAGAIN)
        // Parked again, it is whole.
        let again = try host.supervisor.park(rest.socket.descriptor)
        #expect(try host.supervisor.send(Array("news".utf8), to: again) == 4)
        #expect(try host.supervisor.claim(again).isInsideMessage == false)
        #expect(try pair.hear(4) == Array("news".utf8))
    }

    /// Bytes that were not sent come back together with the socket: no other thread can claim it in between.
    @Test func claimsWhatDoesNotTakeEverything() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        let token = try host.supervisor.park(pair.near, state: [1, 2])
        #expect(try host.supervisor.sendOrClaim(Array("news".utf8), to: token)?.bytes == nil)
        #expect(try pair.hear(4) == Array("news".utf8) && host.supervisor.counters.sockets == 1)
        let flood = (0..<16 << 20).map { UInt8(truncatingIfNeeded: $0 >> 8) }
        let rest = try #require(try host.supervisor.sendOrClaim(flood, to: token))
        defer { close(rest.socket.descriptor) }
        #expect(
            rest.socket.state == [1, 2] && !rest.socket.isInsideMessage
                && host.supervisor.counters.sockets == 0)
        let taken = flood.count - rest.bytes.count
        #expect(taken > 0 && Array(flood[taken...]) == rest.bytes)
        #expect(try pair.hear(taken) == Array(flood[..<taken]))
        let error = #expect(throws: EmbeddedError.self) {
            try host.supervisor.sendOrClaim([1], to: token)
        }
        #expect(error?.code == .unknownToken)
    }
}

extension ParkedEvent {
    init(_ token: ParkingToken, _ reasons: ParkingReasons) {
        self.init(token: token, reasons: reasons)
    }
}
