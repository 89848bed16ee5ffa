import ChatService
import EdgeTestSupport
import Glibc
import LinuxSystem
import Synchronization
import Testing

/// Members that are hibernated at every moment.
@Suite(.timeLimit(.minutes(40))) struct SleepTests {
    @Test func sleepersHearWithoutBeingWoken() throws {
        try withServer { server in
            let (ann, bob) = (try ChatClient(server.port), try ChatClient(server.port))
            try ann.join(as: "Ann")
            #expect(try ann.hear().type == "welcome")
            try bob.join(as: "Bob")
            #expect(try bob.hear().type == "welcome" && ann.hear().type == "joined")
            #expect(server.sleeps(2))
            for number in 1...20 {
                let wakes = server.counters.wakes
                try ann.say("are you there?")
                #expect(try bob.hear().number == number && ann.hear().number == number)
                // Only the sender is awake.
                #expect(server.counters.wakes <= wakes + 1)
                #expect(server.sleeps(2))
            }
            #expect(server.counters.wakes == 20 && server.counters.lost == 0)
        }
    }

    /// Output is activity, too.
    @Test func aMemberThatOnlyHearsStaysAwake() throws {
        try withServer(idle: .milliseconds(400)) { server in
            let (ann, bob) = (try ChatClient(server.port), try ChatClient(server.port))
            for (client, name) in [(ann, "Ann"), (bob, "Bob")] {
                try client.join(as: name)
                #expect(try client.hear("welcome").room == "lobby")
            }
            // On a busy machine, a pause may be too long.
            let isInspected = try (0..<10).contains { _ in
                try bob.say("I am here")
                for client in [ann, bob] { _ = try client.hear("message") }
                let hibernations = server.counters.hibernations
                let start = BootClock.now()
                var (last, longestPause) = (start, Int64(0))
                while last < start + 1_500_000_000 {
                    try ann.say("and?")
                    for client in [ann, bob] { _ = try client.hear("message") }
                    let now = BootClock.now()
                    longestPause = max(longestPause, now - last)
                    last = now
                    poll(nil, 0, 10)
                }
                guard longestPause < 200_000_000 else { return false }
                #expect(server.counters.hibernations == hibernations)
                return true
            }
            #expect(isInspected)
            #expect(server.sleeps(2))
        }
    }

    /// All members of three rooms send, in bursts and with pauses of every length around the idle time, on
    /// several event loops: each gets each message of its room, in the same order.
    @Test func nothingIsLostOrOvertaken() throws {
        let (rooms, perRoom, messages) = (3, 8, 400)
        try withServer(idle: .milliseconds(2), threads: 3) { server in
            let clients = try (0..<rooms * perRoom).map { number in
                let client = try ChatClient(server.port)
                try client.join("room \(number % rooms)", as: "member \(number)")
                #expect(try client.hear("welcome").room == "room \(number % rooms)")
                return client
            }
            let speakers = (0..<rooms).map { room in
                OwnThread { () throws -> Void in
                    var generator = SplitMix(seed: UInt64(room))
                    for number in 0..<messages {
                        let speaker = room + rooms * Int(generator.next() % UInt64(perRoom))
                        try clients[speaker].say("\(number)")
                        if generator.next() % 4 == 0 { usleep(UInt32(generator.next() % 20_000)) }
                    }
                }
            }
            let listeners = clients.enumerated().map { number, client in
                OwnThread { () throws -> [String] in
                    try (1...messages).map { expected in
                        let words = try client.hear("message")
                        #expect(words.number == expected)
                        return "\(words.name ?? "") \(words.text ?? "")"
                    }
                }
            }
            for speaker in speakers { try speaker.join() }
            let heard = try listeners.map { try $0.join() }
            for (number, words) in heard.enumerated() { #expect(words == heard[number % rooms]) }
            let counters = server.counters
            #expect(counters.messages == rooms * messages && counters.lost == 0)
            #expect(counters.hibernations > 100 && counters.wakes > 100, "\(counters)")
        }
    }

    /// A message in many small pieces, with pauses longer than the idle time between them and between its
    /// frames.
    @Test func noMemberSleepsInTheMiddleOfAMessage() throws {
        try withServer(idle: .milliseconds(5)) { server in
            let client = try ChatClient(server.port)
            try client.join(as: "Ann")
            #expect(try client.hear().type == "welcome")
            #expect(server.sleeps(1))
            let text = Array(#"{"type":"say","text":"slowly"}"#.utf8)
            let frames =
                ChatClient.frame(1, Array(text[..<9]), isLast: false)
                + ChatClient.frame(0, Array(text[9..<20]), isLast: false)
                + ChatClient.frame(0, Array(text[20...]))
            for byte in frames {
                try client.write([byte])
                usleep(7_000)
            }
            #expect(try client.hear().text == "slowly")
            #expect(server.counters.wakes == 1 && server.counters.hibernations >= 1)
            #expect(server.sleeps(1))
        }
    }

    /// It came together with the request for a WebSocket, before the handler that counts input was there.
    @Test(arguments: [1, 3, 20]) func noMemberSleepsInTheMiddleOfItsFirstMessage(count: Int) throws {
        try withServer { server in
            let join = try ChatClient.text(["type": "join", "room": "lobby", "name": "Ann"])
            let ann = try ChatClient(server.port, early: Array(join[..<count]))
            // A silent member that joins later falls asleep later.
            let bob = try ChatClient(server.port)
            #expect(eventually { server.counters.hibernated > 0 })
            #expect(server.counters.hibernated == 1)
            try ann.write(Array(join[count...]))
            #expect(try ann.hear().type == "welcome")
            #expect(server.sleeps(2))
            withExtendedLifetime(bob) {}
        }
    }

    /// The socket of a sleeper is full: the rest comes when the client reads, in order, and before anything
    /// else, also if the client has sent a close by then.
    @Test(arguments: [false, true]) func aFullSocketIsNoHole(closes: Bool) throws {
        try withServer(idle: .milliseconds(10)) { server in
            let (slow, good) = (
                try ChatClient(server.port, receiveBuffer: 8_192), try ChatClient(server.port)
            )
            try slow.join(as: "Slow")
            #expect(try slow.hear().type == "welcome")
            try good.join(as: "Good")
            #expect(try good.hear().type == "welcome")
            #expect(server.sleeps(2))
            let text = String(repeating: "x", count: 4_000)
            var said = 0
            // Until it is awake and stays so, because its socket is full.
            repeat {
                for _ in 0..<20 {
                    try good.say(text)
                    said += 1
                    #expect(try good.hear("message").number == said)
                }
            } while said < 4_000 && eventually(within: 3_000) { server.counters.hibernated == 2 }
            #expect(said < 4_000, "its socket is never full")
            for _ in 0..<10 {
                try good.say(text)
                said += 1
                #expect(try good.hear("message").number == said)
            }
            if closes { try slow.write(ChatClient.frame(8, [3, 232])) }
            for number in 1...said { #expect(try slow.hear("message").number == number) }
            if closes { #expect(try slow.end() == .close(1_000)) }
            #expect(server.sleeps(closes ? 1 : 2) && server.counters.lost == 0)
        }
    }

    /// A member that cannot be woken leaves its room, like one that closes its connection.
    @Test func aLostMemberLeaves() throws {
        struct Broken: Error {}
        let broken = Atomic(false)
        try withServer(willRebuild: { if broken.load(ordering: .relaxed) { throw Broken() } }) { server in
            let (ann, bob) = (try ChatClient(server.port), try ChatClient(server.port))
            let stranger = try ChatClient(server.port)
            try ann.join(as: "Ann")
            #expect(try ann.hear().type == "welcome")
            try bob.join(as: "Bob")
            #expect(try bob.hear().type == "welcome" && ann.hear().type == "joined")
            #expect(server.sleeps(3))
            broken.store(true, ordering: .relaxed)
            for client in [bob, stranger] {
                try client.write(ChatClient.frame(1, Array("{}".utf8)))
                #expect(try client.end() == .end)
            }
            #expect(try ann.hear() == Words(type: "left", name: "Bob"))
            #expect(eventually { server.counters.connections == 1 && server.counters.lost == 2 })
            // Its name is free, and its row is reused.
            broken.store(false, ordering: .relaxed)
            let next = try ChatClient(server.port)
            try next.join(as: "Bob")
            #expect(try next.hear().names == ["Bob", "Ann"] && ann.hear().name == "Bob")
            #expect(server.sleeps(2))
            try ann.say("still here")
            #expect(try next.hear().text == "still here" && ann.hear().text == "still here")
        }
    }

    @Test func pingsAreSentAndAnsweredWhileAllSleep() throws {
        try withServer(ping: .seconds(5)) { server in
            let ann = try ChatClient(server.port)
            try ann.join(as: "Ann")
            #expect(try ann.hear().type == "welcome")
            #expect(server.sleeps(1))
            guard case .ping(let payload) = try ann.next() else {
                throw ChatClient.Refused(answer: "no ping")
            }
            try ann.write(ChatClient.frame(10, payload))
            #expect(eventually { server.counters.pongs == 1 })
            try ann.write(ChatClient.frame(9, [7]))
            #expect(try ann.next() == .pong([7]))
            #expect(server.counters.pingsSent == 1 && server.counters.wakes == 0)
        }
    }

    /// A member that does not answer a ping is removed, awake or asleep.
    @Test(arguments: [nil, Duration.milliseconds(30)])
    func aMemberThatDoesNotAnswerIsRemoved(idle: Duration?) throws {
        try withServer(idle: idle, ping: .seconds(5)) { server in
            let (ann, mute) = (try ChatClient(server.port), try ChatClient(server.port))
            try ann.join(as: "Ann")
            #expect(try ann.hear().type == "welcome")
            try mute.join(as: "Mute")
            #expect(try ann.hear().type == "joined")
            #expect(try ann.hear(within: 40_000) == Words(type: "left", name: "Mute"))
            #expect(server.counters.connections == 1)
        }
    }
}
