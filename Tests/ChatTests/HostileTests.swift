import ChatService
import EdgeTestSupport
import Glibc
import Testing

/// Clients that violate the protocol, beside one that does not.
@Suite(.timeLimit(.minutes(40))) struct HostileTests {
    /// Runs a client of that kind, awake and just woken, and checks that a member of the same room notices
    /// only its end.
    private func expectEnd(
        _ code: Int?, _ bytes: [UInt8], comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        try withServer { server in
            let good = try ChatClient(server.port)
            try good.join(as: "Good")
            #expect(try good.hear().type == "welcome")
            for sleepsFirst in [false, true] {
                let bad = try ChatClient(server.port)
                try bad.join(as: "Bad")
                #expect(try bad.hear().type == "welcome" && good.hear().type == "joined")
                if sleepsFirst { #expect(server.sleeps(2)) }
                try bad.write(bytes)
                #expect(try bad.end() == .close(code), comment, sourceLocation: sourceLocation)
                #expect(try good.hear() == Words(type: "left", name: "Bad"))
                shutdown(bad.descriptor, CInt(SHUT_RDWR))
                #expect(eventually { server.counters.connections == 1 })
            }
            try good.say("still here")
            #expect(try good.hear().text == "still here")
        }
    }

    @Test func tooLargeAFrame() throws {
        try expectEnd(1_009, ChatClient.frame(1, [UInt8](repeating: 65, count: 16_385)))
    }

    @Test func afterTheLengthOfTooLargeAFrameNothingIsAwaited() throws {
        try expectEnd(1_009, [0x81, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1, 2, 3, 4])
    }

    @Test func tooLargeATextInPieces() throws {
        let piece = [UInt8](repeating: 65, count: 8_192)
        try expectEnd(
            1_009,
            ChatClient.frame(1, piece, isLast: false) + ChatClient.frame(0, piece, isLast: false)
                + ChatClient.frame(0, [65], isLast: true))
    }

    @Test func unmaskedFrames() throws {
        try expectEnd(1_002, ChatClient.frame(1, Array("{}".utf8), isMasked: false))
    }

    @Test func binaryMessages() throws {
        try expectEnd(1_003, ChatClient.frame(2, [1, 2, 3]))
    }

    @Test(arguments: [[0xFF, 0xFE], [0xC3], [0xED, 0xA0, 0x80], [0xF4, 0x90, 0x80, 0x80]])
    func textThatIsNone(bytes: [UInt8]) throws {
        try expectEnd(1_007, ChatClient.frame(1, bytes))
    }

    @Test(arguments: [3, 4, 7, 11, 15])
    func opcodesThatDoNotExist(opcode: UInt8) throws {
        try expectEnd(1_002, ChatClient.frame(opcode, []))
    }

    @Test(arguments: [0x40, 0x20, 0x10])
    func reservedBits(bit: UInt8) throws {
        try expectEnd(1_002, ChatClient.frame(1 | bit, Array("{}".utf8)))
    }

    @Test func continuationsOfNothing() throws {
        try expectEnd(1_002, ChatClient.frame(0, [65]))
    }

    @Test func aTextWithinAText() throws {
        try expectEnd(1_002, ChatClient.frame(1, [65], isLast: false) + ChatClient.frame(1, [65]))
    }

    @Test func controlFramesInPieces() throws {
        try expectEnd(1_002, ChatClient.frame(9, [], isLast: false))
    }

    @Test func controlFramesThatAreTooLong() throws {
        try expectEnd(1_002, ChatClient.frame(9, [UInt8](repeating: 1, count: 126)))
    }

    @Test func aCloseIsAnswered() throws {
        try expectEnd(1_000, ChatClient.frame(8, [0x03, 0xE8]))
        try expectEnd(1_000, ChatClient.frame(8, []))
    }

    /// An unknown message is answered with an error, and changes nothing.
    @Test func dataBehindACloseIsIgnored() throws {
        try withServer { server in
            let (good, bad) = (try ChatClient(server.port), try ChatClient(server.port))
            try good.join(as: "Good")
            #expect(try good.hear().type == "welcome")
            try bad.join(as: "Bad")
            #expect(try bad.hear().type == "welcome" && good.hear().type == "joined")
            try bad.write(
                ChatClient.frame(8, [3, 232]) + ChatClient.text(["type": "say", "text": "still here"]))
            #expect(try bad.end() == .close(1_000))
            try good.say("gone")
            #expect(try good.hear() == Words(type: "left", name: "Bad") && good.hear().text == "gone")
        }
    }

    /// Each welcome has the whole history: for a client that keeps joining and leaving, one is made at a
    /// time.
    @Test func aMemberThatComesAndGoesHasOneWelcomeOnItsWay() throws {
        try withServer { server in
            let client = try ChatClient(server.port)
            let join = try ChatClient.text(["type": "join", "room": "lobby", "name": "Bad"])
            let leave = try ChatClient.text(["type": "leave"])
            try client.write(join + leave + join)
            var heard: [Words] = []
            while heard.last?.type != "welcome" { heard.append(try client.hear()) }
            #expect(
                heard.dropLast().map(\.text) == ["you are not in the room yet", "you are in a room already"])
            try client.write(leave + join)
            #expect(try client.hear().type == "welcome")
        }
    }

    @Test func wordsThatMeanNothing() throws {
        try withServer { server in
            let client = try ChatClient(server.port)
            let long = String(repeating: "x", count: 4_097)
            for text in [
                "", "{", "[]", "null", "7", "\"say\"", "{}", #"{"type":7}"#, #"{"type":"dance"}"#,
                #"{"type":"say","text":"before joining"}"#, #"{"type":"join"}"#,
                #"{"type":"join","room":"lobby"}"#, #"{"type":"join","room":"lobby","name":""}"#,
                #"{"type":"join","room":"lobby","name":7}"#, #"{"type":"join","room":[],"name":"Ann"}"#,
                #"{"type":"join","room":" lobby","name":"Ann"}"#,
                #"{"type":"join","room":"lobby","name":"\#(long)"}"#,
                String(repeating: "[", count: 16_000),
            ] {
                try client.write(ChatClient.frame(1, Array(text.utf8)))
                #expect(try client.hear().type == "error", "\(text.prefix(60))")
            }
            try client.join(as: "Ann")
            #expect(try client.hear().type == "welcome")
            for text in ["", " ", long, "\u{0}"] {
                try client.say(text)
                #expect(try client.hear().type == "error")
            }
            try client.say("words")
            #expect(try client.hear().number == 1)
        }
    }

    @Test func aTextMayComeInPiecesWithPingsBetweenThem() throws {
        try withServer { server in
            let client = try ChatClient(server.port)
            try client.join(as: "Ann")
            #expect(try client.hear().type == "welcome")
            let text = Array(#"{"type":"say","text":"in pieces ü"}"#.utf8)
            for (number, sizes) in [[1, 10, 20], [36, 36, 36], [0, 0, 5], [35, 35, 36]].enumerated() {
                var frames = ChatClient.frame(1, Array(text[..<sizes[0]]), isLast: false)
                frames += ChatClient.frame(9, [1, 2, 3])
                frames += ChatClient.frame(0, Array(text[sizes[0]..<sizes[1]]), isLast: false)
                frames += ChatClient.frame(0, Array(text[sizes[1]..<sizes[2]]), isLast: false)
                frames += ChatClient.frame(0, Array(text[sizes[2]...]))
                try client.write(frames)
                #expect(try client.next() == .pong([1, 2, 3]))
                let words = try client.hear()
                #expect(words.text == "in pieces ü" && words.number == number + 1)
            }
        }
    }

    /// A client that reads nothing is closed at some point; the others get everything.
    @Test(arguments: [nil, Duration.milliseconds(30)])
    func aReaderThatIsTooSlow(idle: Duration?) throws {
        try withServer(idle: idle) { server in
            let slow = try ChatClient(server.port, receiveBuffer: 4_096)
            try slow.join(as: "Slow")
            let good = try ChatClient(server.port)
            try good.join(as: "Good")
            #expect(try good.hear().type == "welcome")
            if idle != nil { #expect(server.sleeps(2)) }
            let text = String(repeating: "x", count: 4_000)
            var number = 0
            var isGone = false
            // The kernel holds a few megabytes, too.
            while !isGone, number < 10_000 {
                try good.say(text)
                while true {
                    let words = try good.hear()
                    if words.type == "left" { isGone = true }
                    if words.type == "message" {
                        number += 1
                        #expect(words.number == number)
                        break
                    }
                }
            }
            #expect(isGone && number > 256, "\(number) messages")
            #expect(eventually { server.counters.connections == 1 })
            #expect(server.counters.lost == 0)
        }
    }

    /// A client that keeps requesting the page, and reads nothing, is closed before all answers lie in
    /// memory.
    @Test func aClientThatAsksAndDoesNotReadIsClosed() throws {
        try withServer { server in
            let client = try RawClient(server.port)
            client.setReceiveBuffer(4_096)
            let whole = try HTTPAnswer("GET /script.js HTTP/1.1", server.port)
            let count = (64 << 20) / whole.body.utf8.count
            let request = "GET /script.js HTTP/1.1\r\nHost: 127.0.0.1:\(server.port)\r\n\r\n"
            let requests = Array(String(repeating: request, count: count).utf8)
            let emptyLine = Array("\r\n".utf8)
            var sent = 0
            // Input on a closed socket resets the connection.
            let isClosed = eventually(within: 30_000) {
                let rest = sent < requests.count ? requests[sent...] : emptyLine[...]
                let more = rest.withUnsafeBytes {
                    send(client.descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
                }
                sent += max(0, more)
                return more < 0 && errno != EAGAIN
            }
            #expect(isClosed)
            #expect(try HTTPAnswer("GET / HTTP/1.1", server.port).status == 200)
        }
    }

    /// A client that requests much with `Connection: close`, and reads late, gets all of it, up to the limit
    /// of pending output.
    @Test func aClientThatReadsLateGetsAllOfIt() throws {
        try withServer { server in
            let request = "GET /script.js HTTP/1.1\r\nHost: 127.0.0.1:\(server.port)\r\n"
            func bytes(_ count: Int) throws -> Int {
                let client = try RawClient(server.port)
                // Little of it, but more than a segment of the loopback device: to a window that has once
                // been smaller, the kernel sends 8 KiB each 0.2 s.
                client.setReceiveBuffer(131_072)
                let before = String(repeating: request + "\r\n", count: count - 1)
                try client.say(before + request + "Connection: close\r\n\r\n")
                // The server has handled all earlier requests.
                for _ in 0..<2 { _ = try HTTPAnswer("GET /counters HTTP/1.1", server.port) }
                return try client.hearEverything().utf8.count
            }
            let whole = try bytes(1)
            // The kernel holds a part of it, which differs between machines.
            for total in stride(from: 900_000, through: 7_200_000, by: 900_000) {
                let count = total / whole
                let heard = try bytes(count)
                // The last one may have an additional header.
                let left = count * whole - heard
                #expect(left < count * 64 || left > Limits.unreadBytes, "\(left) of \(total) bytes")
            }
        }
    }

    @Test func halfAConnectionIsNone() throws {
        try withServer { server in
            let other = try ChatClient(server.port)
            try other.join(as: "Bob")
            #expect(try other.hear().type == "welcome")
            for sleepsFirst in [false, true] {
                let client = try ChatClient(server.port)
                try client.join(as: "Ann")
                #expect(try client.hear().type == "welcome" && other.hear().type == "joined")
                if sleepsFirst { #expect(server.sleeps(2)) }
                try client.say("last words")
                shutdown(client.descriptor, CInt(SHUT_WR))
                #expect(try client.end() == .end)
                #expect(try other.hear().text == "last words" && other.hear().type == "left")
                #expect(eventually { server.counters.connections == 1 })
            }
            // In the middle of a frame, and with a reset.
            let client = try ChatClient(server.port)
            try client.join(as: "Ann")
            #expect(try client.hear().history?.count == 2)
            try client.write([0x81, 0xFE, 1])
            var linger = Glibc.linger(l_onoff: 1, l_linger: 0)
            setsockopt(
                client.descriptor, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout<Glibc.linger>.size))
            shutdown(client.descriptor, CInt(SHUT_RDWR))
            #expect(eventually { server.counters.connections == 1 })
        }
    }

    /// Connects and leaves at every step of the protocol, thousands of times, and nothing is left.
    @Test func thousandsComeAndGo() throws {
        try withServer(idle: .milliseconds(1), threads: 2) { server in
            let threads = (0..<4).map { thread in
                OwnThread { () throws -> Void in
                    var generator = SplitMix(seed: UInt64(thread))
                    for turn in 0..<500 {
                        let step = generator.next() % 6
                        if step == 0 {
                            let raw = try RawClient(server.port)
                            try raw.say("GET /ws HTTP/1.1\r\nUpgr")
                            continue
                        }
                        let client = try ChatClient(server.port)
                        if step == 1 { continue }
                        try client.join("room \(turn % 7)", as: "\(thread) \(turn)")
                        if step == 2 { continue }
                        _ = try client.hear("welcome")
                        if step == 3 { continue }
                        try client.say("hello")
                        if step == 4 { continue }
                        while try client.hear("message").name != "\(thread) \(turn)" {}
                        usleep(UInt32(generator.next() % 4_000))
                    }
                }
            }
            for thread in threads { try thread.join() }
            #expect(eventually { server.counters.connections == 0 && server.counters.hibernated == 0 })
            #expect(server.counters.lost == 0)
            // All names are free.
            let last = try ChatClient(server.port)
            for room in 0..<7 {
                try last.join("room \(room)", as: "last")
                #expect(try last.hear().names == ["last"])
                try last.write(ChatClient.text(["type": "leave"]))
            }
        }
    }
}
