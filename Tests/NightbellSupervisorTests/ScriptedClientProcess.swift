import EdgeTestSupport
import Foundation
import LinuxSystem

/// A real client process that carries out commands, and can really be frozen.
final class ScriptedClientProcess {
    let child: Child
    private var pending = ""
    private var lines: [String] = []
    /// Commands sent without waiting for their answers; those come before the answers of later commands.
    private var owedAnswers = 0

    init() throws {
        child = try Child(Self.program("scripted-client"))
    }

    /// Starts a process that is a client already.
    convenience init(_ supervisor: TestSupervisor, _ identifier: String, _ words: String = "voip") throws {
        try self.init(path: supervisor.socketPath, identifier, words)
    }

    convenience init(path: String, _ identifier: String, _ words: String = "voip") throws {
        try self.init()
        try command("hello \(identifier) \(words) socket=\(path)")
    }

    /// A program of this package, built beside the tests.
    static func program(_ name: String) -> String {
        let tests = URL(fileURLWithPath: CommandLine.arguments[0]).resolvingSymlinksInPath()
        return tests.deletingLastPathComponent().appendingPathComponent(name).path
    }

    var pid: pid_t { child.pid }

    /// Gives a command and waits until it was carried out; returns the text after `ok`.
    @discardableResult
    func command(_ text: String) throws -> String {
        try child.send(text + "\n")
        try settle()
        let answer = try answer()
        guard answer.hasPrefix("ok") else { throw TestFailure("\(text): \(answer)") }
        return String(answer.dropFirst(3))
    }

    private func answer() throws -> String {
        try event { $0 == "ok" || $0.hasPrefix("ok ") || $0.hasPrefix("error ") }
    }

    /// Gives a command after which it may be frozen before it answers `ok`, or is already.
    func tell(_ text: String) throws {
        try child.send(text + "\n")
        owedAnswers += 1
    }

    /// Waits for the answers to all commands.
    func settle() throws {
        while owedAnswers > 0 {
            _ = try answer()
            owedAnswers -= 1
        }
    }

    func enterBackground() throws {
        try tell("background")
        try event("did-enter-background")
    }

    /// The next line that begins with `word`; earlier lines stay in the queue.
    @discardableResult
    func event(_ word: String) throws -> String {
        try event { $0 == word || $0.hasPrefix(word + " ") }
    }

    /// The next wake with this reason. There may be one for its own message before: it is no fault that it
    /// was suspended between sending a message and reading the answer.
    func wake(reason: String) throws -> String {
        try event {
            $0.hasPrefix("wake ")
                && $0.split(separator: " ")[2].dropFirst("reasons=".count)
                    .split(separator: "+").contains { $0 == reason }
        }
    }

    /// All lines so far that begin with `word` and were not waited for.
    func heard(_ word: String) -> [String] {
        lines.filter { $0 == word || $0.hasPrefix(word + " ") }
    }

    private func event(_ matches: (String) -> Bool) throws -> String {
        var next = 0
        // It may print other lines again and again.
        let deadline = BootClock.now() + 30_000_000_000
        while true {
            while next < lines.count {
                if matches(lines[next]) { return lines.remove(at: next) }
                next += 1
            }
            guard BootClock.now() < deadline, let heard = try child.hear(), !heard.isEmpty else {
                throw TestFailure("the scripted says nothing more; last: \(lines.suffix(5))")
            }
            pending += heard
            while let end = pending.firstIndex(of: "\n") {
                lines.append(String(pending[..<end]))
                pending.removeSubrange(...end)
            }
        }
    }

    /// Connects over TCP to a listener of the test's; returns the test's end.
    func connect(_ name: String) throws -> Int32 {
        let (listener, address) = try Pair.listener()
        defer { close(listener) }
        try command("connect-tcp \(UInt16(bigEndian: address.sin_port)) \(name)")
        let peer = accept(listener, nil, nil)
        guard peer >= 0 else { throw Pair.failure("accept") }
        return peer
    }

    /// Hands over a TCP connection; its input is read automatically.
    func park(_ name: String) throws -> Int32 {
        let peer = try connect(name)
        try command("handover \(name) voip")
        try command("auto-read on")
        return peer
    }

    deinit {
        child.end()
    }
}

extension Int32 {
    /// Writes to the descriptor.
    func say(_ text: String) throws {
        guard send(self, text, text.utf8.count, Int32(MSG_NOSIGNAL)) == text.utf8.count else {
            throw Pair.failure("send")
        }
    }
}
