import ChatService
import EdgeTestSupport
import Foundation
import Glibc
import Testing

/// Clients that follow the protocol.
@Suite(.timeLimit(.minutes(40))) struct ConversationTests {
    @Test(arguments: [1, 3])
    func allOfARoomHearIt(threads: Int) throws {
        try withServer(threads: threads) { server in
            let (ann, bob, eve) = try (
                ChatClient(server.port), ChatClient(server.port), ChatClient(server.port)
            )
            try ann.join(as: "Ann")
            let welcome = try ann.hear()
            #expect(welcome.type == "welcome" && welcome.room == "lobby" && welcome.history == [])
            #expect(welcome.names == ["Ann"] && welcome.members == 1)
            try bob.join(as: "Bob")
            #expect(try bob.hear().names?.sorted() == ["Ann", "Bob"])
            #expect(try ann.hear() == Words(type: "joined", name: "Bob"))
            try eve.join("elsewhere", as: "Ann")
            #expect(try eve.hear().names == ["Ann"])

            try bob.say("hello \"there\" / 🐈\nand there")
            for client in [ann, bob] {
                let words = try client.hear()
                #expect(words.type == "message" && words.room == "lobby" && words.name == "Bob")
                #expect(words.text == "hello \"there\" / 🐈\nand there" && words.number == 1)
            }
            try ann.say("two")
            #expect(try [ann, bob].map { try $0.hear().number } == [2, 2])
            try eve.say("alone")
            #expect(try eve.hear().number == 1)

            try bob.write(ChatClient.text(["type": "leave"]))
            #expect(try ann.hear() == Words(type: "left", name: "Bob"))
            try bob.say("from outside")
            #expect(try bob.hear().type == "error")
            try bob.join(as: "Bob")
            let again = try bob.hear()
            #expect(again.history?.map(\.text) == ["hello \"there\" / 🐈\nand there", "two"])
            #expect(again.history?.map(\.number) == [1, 2])
            #expect(server.counters.messages == 3)
        }
    }

    @Test func aNameIsTakenUntilItsOwnerLeaves() throws {
        try withServer { server in
            let ann = try ChatClient(server.port)
            try ann.join(as: "Ann")
            #expect(try ann.hear().type == "welcome")
            try ann.join(as: "Other")
            #expect(try ann.hear() == Words(type: "error", text: "you are in a room already"))
            do {
                let second = try ChatClient(server.port)
                try second.join(as: "Ann")
                #expect(try second.hear() == Words(type: "error", text: "this name is taken in this room"))
                try second.join(as: "Anne")
                #expect(try second.hear().type == "welcome")
            }
            #expect(try ann.hear().name == "Anne" && ann.hear() == Words(type: "left", name: "Anne"))
            #expect(server.sleeps(1))
            // Asleep, she keeps the name; if she leaves while asleep, it is free.
            let third = try ChatClient(server.port)
            try third.join(as: "Ann")
            #expect(try third.hear().type == "error")
            shutdown(ann.descriptor, CInt(SHUT_WR))
            #expect(try ann.end() == .end)
            try third.join(as: "Ann")
            #expect(try third.hear().names == ["Ann"])
        }
    }

    /// `é` in one piece or in two, the sign of Kelvin or a K: there is no visible difference.
    @Test(arguments: [("Zo\u{E9}", "Zoe\u{301}"), ("Zoe\u{301}", "Zo\u{E9}"), ("\u{212A}im", "Kim")])
    func namesThatLookTheSameAreTheSame(name: String, other: String) throws {
        try withServer { server in
            let (first, second) = (try ChatClient(server.port), try ChatClient(server.port))
            try first.join(name, as: name)
            let welcome = try first.hear()
            #expect(Array(welcome.names?.first?.utf8 ?? "".utf8) == Array(name.utf8))
            try second.join(other, as: other)
            #expect(try second.hear() == Words(type: "error", text: "this name is taken in this room"))
            // It is the same room as well, under its first spelling.
            try second.join(other, as: "Eve")
            let room = try second.hear().room
            #expect(Array(room?.utf8 ?? "".utf8) == Array(name.utf8))
            #expect(try first.hear() == Words(type: "joined", name: "Eve"))
            // It is free again, in every spelling.
            try first.write(ChatClient.text(["type": "leave"]))
            #expect(try second.hear().type == "left")
            try second.write(ChatClient.text(["type": "leave"]))
            try second.join(other, as: other)
            #expect(try second.hear().names?.map { Array($0.utf8) } == [Array(other.utf8)])
        }
    }

    @Test func theHistoryHasFiftyLines() throws {
        try withServer { server in
            let ann = try ChatClient(server.port)
            try ann.join(as: "Ann")
            for number in 1...70 { try ann.say("line \(number)") }
            for number in 1...70 { #expect(try ann.hear("message").number == number) }
            let bob = try ChatClient(server.port)
            try bob.join(as: "Bob")
            let history = try bob.hear().history ?? []
            #expect(history.map(\.number) == Array(21...70))
            #expect(history.map(\.text) == (21...70).map { "line \($0)" })
            #expect(zip(history, history.dropFirst()).allSatisfy { $0.time <= $1.time })
        }
    }

    /// Members of a large room get only its number of members, and not for each change.
    @Test func aLargeRoomTellsNumbers() throws {
        try withServer(idle: .milliseconds(300)) { server in
            let count = 230
            let clients = try (0..<count).map { number in
                let client = try ChatClient(server.port)
                try client.join(as: "member \(number)")
                let welcome = try client.hear("welcome")
                #expect(welcome.members == number + 1 && welcome.names?.count == min(200, number + 1))
                return client
            }
            var (joined, counted) = (0, 0)
            while counted < count {
                let words = try clients[0].hear()
                if words.type == "joined" { joined += 1 }
                if words.type == "count" { counted = words.members ?? 0 }
            }
            #expect(joined == 199 && counted == count)
        }
    }

    @Test func thePageAndItsParts() throws {
        try withServer { server in
            for (path, type, words) in [
                ("/", "text/html; charset=utf-8", "<title>Chat</title>"),
                ("/?x", "text/html; charset=utf-8", "<title>Chat</title>"),
                ("/style.css", "text/css; charset=utf-8", "light-dark("),
                ("/script.js", "text/javascript; charset=utf-8", "new WebSocket"),
                ("/icon.svg", "image/svg+xml", "<svg"),
            ] {
                let answer = try HTTPAnswer("GET \(path) HTTP/1.1", server.port)
                #expect(answer.status == 200 && answer.head.contains("content-type: \(type)\r\n"))
                #expect(answer.head.contains("content-security-policy: default-src 'self'"))
                #expect(answer.body.contains(words))
                let head = try HTTPAnswer("HEAD \(path) HTTP/1.1", server.port)
                #expect(head.status == 200 && head.body.isEmpty)
            }
            #expect(try HTTPAnswer("GET /nothing HTTP/1.1", server.port).status == 404)
            #expect(try HTTPAnswer("POST / HTTP/1.1", server.port).status == 405)
            #expect(try HTTPAnswer("GET /ws HTTP/1.1", server.port).status == 404)
            #expect(try HTTPAnswer("nonsense", server.port).status == 400)
        }
    }

    @Test func sleepersOfARoom() throws {
        try withServer(idle: .milliseconds(30), threads: 2) { server in
            let (ann, bob) = (try ChatClient(server.port), try ChatClient(server.port))
            try ann.join("a room & more", as: "Ann")
            #expect(try ann.hear().type == "welcome")
            try bob.join("another", as: "Bob")
            #expect(try bob.hear().type == "welcome")
            #expect(server.sleeps(2))
            func asked(_ query: String) throws -> HTTPAnswer {
                try HTTPAnswer("GET /sleepers\(query) HTTP/1.1", server.port)
            }
            let room = try asked("?room=a%20room%20%26%20more")
            #expect(room.status == 200 && room.head.contains("content-type: application/json\r\n"))
            #expect(room.body.contains("\"members\":1") && room.body.contains("\"asleep\":1"))
            #expect(room.body.contains("\"names\":[\"Ann\"]"), "and none of another room")
            try ann.write([0x81])
            #expect(
                try eventually { try asked("?room=a%20room%20%26%20more").body.contains("\"asleep\":0") })
            #expect(try asked("?room=nowhere").body.contains("\"members\":0"))
            for query in [
                "", "?room", "?room=%2", "?room=%zz", "?room=%FF",
                "?room=\(String(repeating: "x", count: 33))",
            ] {
                #expect(try asked(query).status == 400, "\(query)")
            }
            #expect(server.counters.connections == 2 && server.counters.lost == 0)
        }
    }

    @Test func theCountersAreOneObject() throws {
        try withServer { server in
            let ann = try ChatClient(server.port)
            try ann.join(as: "Ann")
            #expect(try ann.hear().type == "welcome")
            #expect(server.sleeps(1))
            let body = try HTTPAnswer("GET /counters HTTP/1.1", server.port).body
            let counters = try JSONDecoder().decode([String: Int].self, from: Data(body.utf8))
            #expect(
                counters == [
                    "connections": 1, "hibernated": 1, "resident": 0, "hibernations": 1, "wakes": 0,
                    "messages": 0, "pings_sent": 0, "pongs": 0, "lost": 0,
                ])
        }
    }

    /// A foreign page must not connect on behalf of its viewer.
    @Test func onlyTheServersOwnPageMayConnect() throws {
        try withServer { server in
            let own = "Origin: http://127.0.0.1:\(server.port)\r\n"
            #expect(throws: Never.self) { try ChatClient(server.port, headers: own) }
            #expect(throws: ChatClient.Refused.self) {
                try ChatClient(server.port, headers: "Origin: http://evil.example\r\n")
            }
            #expect(throws: ChatClient.Refused.self) { try ChatClient(server.port, path: "/other") }
        }
    }

    /// A foreign name that resolves to this address is refused, whatever the page's origin is.
    @Test func onlyNamesOfThisMachineAreServed() throws {
        try withServer { server in
            let evil = "Host: evil.example:\(server.port)\r\n"
            let origin = "Origin: http://evil.example:\(server.port)\r\n"
            let key = "Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            let upgrade = key + "Sec-WebSocket-Version: 13\r\n"
            for (headers, status) in [
                (evil, 421), (evil + origin + upgrade, 421),
                ("Host: localhost\r\nHost: evil.example\r\n" + upgrade, 421),
                ("Host: localhost\r\n" + origin + upgrade, 403),
                ("Host: [::1]:80\r\n" + key + "Sec-WebSocket-Version: 8\r\n", 426),
            ] {
                let client = try RawClient(server.port)
                try client.say("GET /ws HTTP/1.1\r\n\(headers)Connection: upgrade, close\r\n\r\n")
                #expect(try client.hearEverything().hasPrefix("HTTP/1.1 \(status) "), "\(headers)")
            }
        }
    }
}

/// The answer to one request of HTTP.
struct HTTPAnswer {
    let head: String
    let body: String

    init(_ request: String, _ port: Int) throws {
        let client = try RawClient(port)
        try client.say("\(request)\r\nHost: 127.0.0.1:\(port)\r\nConnection: close\r\n\r\n")
        let text = try client.hearEverything()
        let end = try #require(text.range(of: "\r\n\r\n"))
        head = String(text[..<end.lowerBound]) + "\r\n"
        body = String(text[end.upperBound...])
    }

    var status: Int { Int(head.split(separator: " ").dropFirst().first ?? "") ?? 0 }
}

/// A connection for text.
final class RawClient {
    let descriptor: CInt

    init(_ port: Int) throws {
        descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = UInt16(port).bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let socket = descriptor
        let result = withUnsafeBytes(of: &address) { bytes in
            connect(
                socket, bytes.assumingMemoryBound(to: sockaddr.self).baseAddress, socklen_t(bytes.count))
        }
        try #require(result == 0, "connect: errno \(errno)")
    }

    deinit { close(descriptor) }

    func say(_ text: String) throws {
        let bytes = Array(text.utf8)
        try #require(send(descriptor, bytes, bytes.count, CInt(MSG_NOSIGNAL)) == bytes.count)
    }

    func setReceiveBuffer(_ count: CInt) {
        var count = count
        setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &count, socklen_t(MemoryLayout<CInt>.size))
    }

    /// Reads this many bytes; fewer at the end.
    func hear(_ count: Int) throws -> String {
        var text: [UInt8] = []
        while text.count < count, let more = try hearSome(count - text.count) { text += more }
        return String(decoding: text, as: UTF8.self)
    }

    func hearEverything() throws -> String {
        var text: [UInt8] = []
        while let more = try hearSome(65_536) { text += more }
        return String(decoding: text, as: UTF8.self)
    }

    private func hearSome(_ most: Int) throws -> ArraySlice<UInt8>? {
        var entry = pollfd(fd: descriptor, events: CShort(POLLIN), revents: 0)
        try #require(poll(&entry, 1, 20_000) == 1, "nothing to read")
        var bytes = [UInt8](repeating: 0, count: most)
        let count = recv(descriptor, &bytes, bytes.count, 0)
        return count > 0 ? bytes[..<count] : nil
    }
}
