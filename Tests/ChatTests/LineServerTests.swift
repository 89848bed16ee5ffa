import EdgeTestSupport
import Testing

/// The server on the page of NightbellNIO.
extension ProgramTests {
    @Test func theLineServerSleepsAndRemembers() throws {
        let (child, port) = try start("line-server", ["0", "0"])
        let client = try RawClient(port)
        for number in 1...3 {
            try client.say("something\n")
            #expect(try client.hear(7) == "line \(number)\n")
            var text = ""
            while !text.contains("asleep after \(number) lines"), let more = try child.hear(), !more.isEmpty {
                text += more
            }
            #expect(text.contains("asleep after \(number) lines"))
            #expect(text.contains("awake again: readable") == (number > 1))
        }
        child.end()
    }
}
