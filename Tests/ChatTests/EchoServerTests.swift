import EdgeTestSupport
import Glibc
import Testing

/// The example of README.md.
extension ProgramTests {
    @Test func theEchoServerAnswersAndRemembers() throws {
        let (child, port) = try start("echo-server", ["0"])
        let (first, second) = (try RawClient(port), try RawClient(port))
        try first.say("hello\n")
        #expect(try first.hear(9) == "6: hello\n")
        try second.say("a\n")
        #expect(try second.hear(5) == "2: a\n")
        try first.say("again\n")
        #expect(try first.hear(10) == "12: again\n")
        shutdown(first.descriptor, CInt(SHUT_WR))
        #expect(try first.hear(1) == "")
        try second.say("still here\n")
        #expect(try second.hear(15) == "13: still here\n")
        child.end()
    }

    @Test func aClientThatDoesNotReadTheEchoServersAnswersIsDropped() throws {
        let (child, port) = try start("echo-server", ["0"])
        let (greedy, other) = (try RawClient(port), try RawClient(port))
        let bytes = [UInt8](repeating: 7, count: 65_536)
        var entry = pollfd(fd: greedy.descriptor, events: CShort(POLLOUT), revents: 0)
        var isLetGo = false
        while !isLetGo {
            try #require(poll(&entry, 1, 10_000) == 1, "the server reads no more, and does not let go")
            let count = send(greedy.descriptor, bytes, bytes.count, CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
            isLetGo = count < 0 && errno != EAGAIN
        }
        try other.say("hi\n")
        #expect(try other.hear(6) == "3: hi\n")
        child.end()
    }

    @Test func whomTheEchoServerCannotTakeItLetsGo() throws {
        // The rest of its descriptors is for connections; descriptors of other tests must not be inherited.
        let limit = 24
        let script = """
            for entry in /proc/self/fd/*; do
                number=${entry##*/}
                if ((number > 2)); then eval "exec $number>&-"; fi
            done
            ulimit -n \(limit); exec "$0" 0
            """
        let (child, port) = try start("/bin/bash", ["--norc", "-c", script, try program("echo-server")])
        let clients = try (0..<2 * limit).map { _ in try RawClient(port) }
        let served = try clients.map { client in
            // The server may have closed it already.
            _ = send(client.descriptor, "x", 1, CInt(MSG_NOSIGNAL))
            return try client.hear(4) == "1: x"
        }
        #expect(served.contains(true) && served.contains(false))
        // A closed connection makes room.
        let isServed = try #require(served.firstIndex(of: true))
        let old = clients[isServed]
        shutdown(old.descriptor, CInt(SHUT_WR))
        #expect(try old.hear(1) == "")
        let new = try RawClient(port)
        try new.say("y")
        #expect(try new.hear(4) == "1: y")
        child.end()
    }

    @Test func theEchoServerSaysThatItsPortIsTaken() throws {
        let (first, port) = try start("echo-server", ["0"])
        let second = try ended("echo-server", "\(port)")
        #expect(second.code == 1)
        #expect(second.text == "echo-server: cannot listen on 127.0.0.1:\(port): Address already in use\n")
        first.end()
    }

    @Test(arguments: ["65536", "-1", "x", ""])
    func theEchoServerRefusesWhatIsNoPort(argument: String) throws {
        let child = try ended("echo-server", argument)
        #expect(child.code == 64 && child.text == "usage: echo-server [PORT]\n")
    }

    /// The output of a program that ended by itself, on both streams, and its exit code.
    private func ended(_ name: String, _ argument: String) throws -> (code: CInt, text: String) {
        let child = try Child("/bin/sh", "-c", "exec \"$0\" \"$1\" 2>&1", try program(name), argument)
        var text = ""
        while let more = try child.hear(), !more.isEmpty { text += more }
        try #require(!text.isEmpty, "\(name) goes on without a word")
        child.reap()
        // The status of `wait`: ended by itself.
        try #require(child.status & 0x7F == 0)
        return (child.status >> 8, text)
    }
}
