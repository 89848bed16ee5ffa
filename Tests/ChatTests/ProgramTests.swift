import EdgeTestSupport
import Foundation
import Glibc
import Testing

/// The programs as users run them.
@Suite(.timeLimit(.minutes(40))) struct ProgramTests {
    /// Starts a program, given by its path or built with the tests, and returns the port in its first line of
    /// output.
    func start(_ name: String, _ arguments: [String]) throws -> (Child, port: Int) {
        let child = try Child(name.contains("/") ? name : try program(name), arguments)
        var text = ""
        while !text.contains("\n"), let more = try child.hear(), !more.isEmpty { text += more }
        let digits = text.split(separator: ":").last?.prefix { $0.isNumber } ?? ""
        return (child, try #require(Int(digits), "\(name) says \(text)"))
    }

    func program(_ name: String) throws -> String {
        let tests = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        for argument in [tests] + CommandLine.arguments where argument.contains("/") {
            var directory = URL(fileURLWithPath: argument).deletingLastPathComponent()
            while directory.path != "/" {
                let program = directory.appendingPathComponent(name).path
                if FileManager.default.isExecutableFile(atPath: program) { return program }
                directory.deleteLastPathComponent()
            }
        }
        throw ChatClient.Refused(answer: "\(name) is not built")
    }

    @Test(arguments: [SIGTERM, SIGINT])
    func theChatServerEndsWhenItIsTold(signal: CInt) throws {
        let (child, port) = try start("chat-server", ["--port", "0", "--hibernate-after", "50ms"])
        let ann = try ChatClient(port)
        try ann.join(as: "Ann")
        #expect(try ann.hear().type == "welcome")
        #expect(
            try eventually {
                try HTTPAnswer("GET /counters HTTP/1.1", port).body.contains("\"hibernated\":1")
            })
        try ann.say("hello")
        #expect(try ann.hear().text == "hello")
        kill(child.pid, signal)
        #expect(try ann.end() == .end)
        child.reap()
        #expect(child.status == 0)
    }

    @Test func theChatServerNeedNotHibernate() throws {
        let (child, port) = try start("chat-server", ["--port", "0", "--no-hibernate", "--threads", "2"])
        let ann = try ChatClient(port)
        try ann.join(as: "Ann")
        #expect(try ann.hear().type == "welcome")
        let counters = try HTTPAnswer("GET /counters HTTP/1.1", port).body
        #expect(counters.contains("\"resident\":1") && counters.contains("\"hibernations\":0"))
        child.end()
    }
}
