import EdgeTestSupport
import Glibc
import NIOCore
import NightbellCore
import NightbellNIO
import NightbellParking
import Testing

/// Channels that are hibernated and woken.
@Suite(.timeLimit(.minutes(40))) struct HibernationTests {
    @Test func anIdleChannelIsHibernatedAndComesBackWithItsState() throws {
        let server = try LineServer()
        let client = try LineClient(server)
        #expect(try client.exchange("one", 1))
        try server.waitUntilHibernated()
        #expect(server.hibernator.supervision.sockets == 1 && server.seen.ends == 0)
        #expect(try client.exchange("two", 2))
        try server.waitUntilHibernated(2)
        #expect(try client.exchange("three", 3))
        #expect(server.seen.wakeReasons == ["readable", "readable"])
        #expect(server.hibernator.counters.lost == 0)
        try server.end()
    }

    @Test func nothingIsLostOrReorderedOnSeveralLoops() throws {
        let server = try LineServer(loops: 3, idle: .milliseconds(2))
        let clients = try (0..<24).map { _ in try LineClient(server) }
        let threads = (0..<4).map { thread in
            OwnThread { () throws -> Int in
                var generator = SplitMix(seed: UInt64(thread))
                var wrong = 0
                var numbers = [Int](repeating: 0, count: clients.count)
                for _ in 0..<1_500 {
                    let index = thread * 6 + Int(generator.next() % 6)
                    // Several lines at once around the moment of hibernation.
                    let lines = 1 + Int(generator.next() % 3)
                    var expected = ""
                    for line in 0..<lines {
                        numbers[index] += 1
                        try clients[index].say("line \(line)\n")
                        expected += "\(numbers[index]) line \(line)\n"
                    }
                    if try clients[index].hear(expected.utf8.count) != expected { wrong += 1 }
                }
                return wrong
            }
        }
        for thread in threads { #expect(try thread.join() == 0) }
        let counters = server.hibernator.counters
        #expect(counters.hibernated > 100 && counters.lost == 0 && server.seen.ends == 0)
        #expect(server.seen.loops.count == 3)
        try server.end()
    }

    @Test func halfALineIsKept() throws {
        let server = try LineServer()
        let client = try LineClient(server)
        #expect(try client.exchange("one", 1))
        try client.say("tw")
        #expect(eventually { server.hibernator.counters.postponed >= 2 })
        try client.say("o\n")
        #expect(try client.hear(6) == "2 two\n")
        try server.waitUntilHibernated()
        try server.end()
    }

    @Test func pendingWritesAreWritten() throws {
        let server = try LineServer()
        let client = try LineClient(server)
        try client.say("much\n")
        #expect(eventually { server.hibernator.counters.postponed >= 2 })
        #expect(server.hibernator.counters.hibernated == 0)
        let much = try client.hear(LineServer.much)
        #expect(much.utf8.count == LineServer.much && much.utf8.allSatisfy { $0 == UInt8(ascii: "m") })
        #expect(try client.hear(7) == "1 much\n")
        try server.waitUntilHibernated()
        #expect(try client.exchange("more", 2))
        try server.end()
    }

    /// A session writes when it is asked for its state.
    @Test func lateWritesAreWritten() throws {
        let server = try LineServer()
        let client = try LineClient(server)
        #expect(try client.exchange("farewell", 1))
        #expect(eventually { server.hibernator.counters.postponed >= 2 })
        #expect(server.hibernator.counters.hibernated == 0)
        #expect(try client.hear(LineServer.much).utf8.count == LineServer.much)
        try server.waitUntilHibernated()
        #expect(try client.exchange("two", 2))
        try server.end()
    }

    @Test func theEndOfASleeperIsTheEndOfItsChannel() throws {
        let server = try LineServer()
        let client = try LineClient(server)
        #expect(try client.exchange("one", 1))
        try server.waitUntilHibernated()
        try client.say("last\n")
        shutdown(client.descriptor, CInt(SHUT_WR))
        #expect(try client.hear(64) == "2 last\n")
        #expect(eventually { server.seen.ends == 1 })
        #expect(server.hibernator.supervision.sockets == 0)
        try server.end()
    }

    @Test func theHostWritesWithoutWakingAndWakes() throws {
        let server = try LineServer()
        let client = try LineClient(server)
        #expect(try client.exchange("one", 1))
        #expect(eventually { server.seen.tokens.count == 1 })
        let token = try #require(server.seen.tokens.first)
        #expect(server.hibernator.send(Array("news\n".utf8), to: token))
        #expect(try client.hear(5) == "news\n")
        #expect(server.hibernator.counters.woken == 0)
        #expect(server.hibernator.wake(token))
        #expect(!server.hibernator.wake(token) && !server.hibernator.send([0], to: token))
        #expect(try client.exchange("two", 2))
        try server.end()
    }

    @Test func partialWritesToASleeperStayInOrder() throws {
        let server = try LineServer()
        let client = try LineClient(server)
        #expect(try client.exchange("one", 1))
        #expect(eventually { server.seen.tokens.count == 1 })
        let token = try #require(server.seen.tokens.first)
        let much = [UInt8](repeating: UInt8(ascii: "m"), count: LineServer.much)
        #expect(server.hibernator.send(much, to: token))
        try client.say("two\n")
        #expect(try client.hear(much.count).utf8.allSatisfy { $0 == UInt8(ascii: "m") })
        #expect(try client.hear(6) == "2 two\n")
        #expect(server.hibernator.counters.woken == 1)
        try server.end()
    }

    @Test func lostConnectionsAreReported() throws {
        let server = try LineServer()
        let (client, other) = (try LineClient(server), try LineClient(server))
        #expect(try client.exchange("one", 1) && client.exchange("two", 2) && other.exchange("one", 1))
        #expect(eventually { server.hibernator.supervision.sockets == 2 })
        server.breakDown()
        try client.say("three\n")
        #expect(try client.hear(1) == "")
        #expect(eventually { server.seen.lost == [[2, 0, 0, 0]] })
        // A wake requested by the host is no exception.
        #expect(eventually { server.seen.tokens.contains { server.hibernator.wake($0) } })
        #expect(try other.hear(1) == "")
        #expect(eventually { server.seen.lost == [[2, 0, 0, 0], [1, 0, 0, 0]] })
        #expect(server.hibernator.counters.lost == 2 && server.hibernator.supervision.sockets == 0)
        try server.end()
    }

    @Test func anEncryptedConnectionIsRefused() throws {
        let server = try LineServer()
        let client = try LineClient(server)
        // The header of a record with a ClientHello, and a line end for the server to be at a boundary.
        let hello: [UInt8] = [22, 3, 1, 0, 1, UInt8(ascii: "\n")]
        #expect(send(client.descriptor, hello, hello.count, 0) == hello.count)
        #expect(eventually { server.seen.errors == [.tls] })
        // It stays a channel for longer than another one takes to be hibernated twice.
        #expect(try client.hear(8).hasPrefix("1 "))
        let other = try LineClient(server)
        try server.waitUntilHibernated()
        #expect(try other.exchange("one", 1))
        try server.waitUntilHibernated(2)
        #expect(try client.exchange("two", 2))
        #expect(server.hibernator.counters.woken == 1)
        try server.end()
    }
}

/// TLS that begins after a channel is watched.
@Suite(.timeLimit(.minutes(40))) struct LaterTLSTests {
    /// Another channel is hibernated, woken and hibernated again, which is enough time for any other.
    private func expectOnlyAnotherSleeps(_ server: LineServer) throws {
        #expect(eventually { server.seen.errors == [.tls] })
        let before = server.hibernator.counters.hibernated
        let other = try LineClient(server)
        #expect(try other.exchange("one", 1))
        try server.waitUntilHibernated(before + 1)
        #expect(try other.exchange("two", 2))
        try server.waitUntilHibernated(before + 2)
        #expect(eventually { server.hibernator.supervision.sockets == 1 })
        #expect(server.seen.errors == [.tls])
    }

    @Test func itsRecordsTell() throws {
        let server = try LineServer()
        let client = try LineClient(server)
        #expect(try client.exchange("one", 1))
        try client.say(LineServer.hello)
        #expect(try client.hear(12).hasPrefix("2 "))
        try expectOnlyAnotherSleeps(server)
        #expect(try client.exchange("three", 3))
        try server.end()
    }

    @Test func writtenHellosAreDetectedAsWell() throws {
        let server = try LineServer()
        let client = try LineClient(server)
        #expect(try client.exchange("one", 1))
        try client.say("hello\n")
        #expect(try client.hearBytes(LineServer.hello.count) == LineServer.hello)
        #expect(try client.hear(8) == "2 hello\n")
        try expectOnlyAnotherSleeps(server)
        #expect(try client.exchange("three", 3))
        try server.end()
    }

    @Test func aHandlerInFrontReports() throws {
        let server = try LineServer()
        let client = try LineClient(server)
        try client.say("encrypt\n")
        #expect(try client.hearBytes(10) == FakeTLS.change("1 encrypt\n".utf8))
        // Only the session knows that TLS is agreed but has not begun.
        let postponed = server.hibernator.counters.postponed
        #expect(eventually { server.hibernator.counters.postponed > postponed })
        #expect(server.seen.errors == [])
        try client.say(FakeTLS.change("two\n".utf8))
        #expect(try client.hearBytes(6) == FakeTLS.change("2 two\n".utf8))
        try expectOnlyAnotherSleeps(server)
        try client.say(FakeTLS.change("three\n".utf8))
        #expect(try client.hearBytes(8) == FakeTLS.change("3 three\n".utf8))
        try server.end()
    }

    /// A record of another type, a message that is no hello, a hello that is too short, and one within a
    /// line.
    @Test(
        arguments: [
            [[23, 3, 3, 0, 5, 1, 0]], [[22, 3, 1, 0, 5, 9, 0]], [[22, 3, 1, 0, 5, 1]],
            [[65], [22, 3, 1, 0, 5, 1, 0]],
        ] as [[[UInt8]]])
    func otherBytesAreNoHello(pieces: [[UInt8]]) throws {
        let server = try LineServer()
        let client = try LineClient(server)
        #expect(try client.exchange("one", 1))
        for piece in pieces.dropLast() {
            let postponed = server.hibernator.counters.postponed
            try client.say(piece)
            #expect(eventually { server.hibernator.counters.postponed > postponed })
        }
        let before = server.hibernator.counters.hibernated
        try client.say((pieces.last ?? []) + [UInt8(ascii: "\n")])
        #expect(try client.hear(pieces.joined().count + 3).hasPrefix("2 "))
        try server.waitUntilHibernated(before + 1)
        #expect(server.seen.errors == [])
        try server.end()
    }
}

/// Frames of WebSocket in pieces of every size.
@Suite struct FramingTests {
    @Test(arguments: 1...9) func boundariesOfFrames(piece: Int) {
        let ping: [UInt8] = [0x89, 0x82, 1, 2, 3, 4, 5, 6]
        let long: [UInt8] = [0x82, 0xFE, 0x01, 0x00, 1, 2, 3, 4] + [UInt8](repeating: 9, count: 256)
        let empty: [UInt8] = [0x81, 0x80, 1, 2, 3, 4]
        for (bytes, ends, isData) in [
            (ping, [8], false), (ping + ping, [8, 16], false), (long, [264], true),
            (empty + ping, [6, 14], true),
            // A message in two frames, with a ping between them.
            ([0x01, 0x80, 1, 2, 3, 4] + ping + [0x80, 0x80, 1, 2, 3, 4], [20], true),
        ] {
            var framing = StreamFraming.webSocket
            var hasData = false
            var position = 0
            while position < bytes.count {
                let end = min(position + piece, bytes.count)
                if framing.note(ByteBuffer(bytes: bytes[position..<end])) { hasData = true }
                position = end
                #expect(framing.isAtBoundary == ends.contains(position))
            }
            #expect(hasData == isData)
        }
    }
}

/// Writes count as activity, except pings and pongs.
@Suite struct OutboundFramingTests {
    @Test(
        arguments: [
            ([[0x89, 0]], [false]), ([[0x8A, 2, 1, 2]], [false]), ([[0x81, 1, 65]], [true]),
            ([[0x89, 2], [0x81, 0]], [false, false]),
            ([[0x89, 2], [1], [2], [0x81, 0]], [false, false, false, true]),
            ([[0x89, 0, 0x81, 0]], [true]), ([[0x89, 0x80, 1, 2, 3, 4]], [false]),
            ([[0x88, 2, 3, 232]], [true]),
            ([[]], [false]),
        ] as [([[UInt8]], [Bool])])
    func pingsAreNone(buffers: [[UInt8]], expected: [Bool]) {
        var framing = OutboundFraming(.webSocket)
        #expect(buffers.map { framing.note(ByteBuffer(bytes: $0)) } == expected)
        var lines = OutboundFraming(.delimiter(10))
        #expect(buffers.allSatisfy { lines.note(ByteBuffer(bytes: $0)) })
    }
}

private struct SplitMix: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var value = state
        value = (value ^ (value >> 30)) &* 0xBF58_476D_1CE4_E5B9
        value = (value ^ (value >> 27)) &* 0x94D0_49BB_1331_11EB
        return value ^ (value >> 31)
    }
}
