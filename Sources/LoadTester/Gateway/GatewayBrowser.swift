import CFloors
import FoundationEssentials
import Glibc
import LinuxSystem
import Presentation

/// A Chromium without a window, driven through two pipes: commands and replies are JSON, each ended by a zero
/// byte (`--remote-debugging-pipe`).
final class GatewayBrowser {
    private let process: ChildProcess
    private let commands: OwnedDescriptor
    private let replies: OwnedDescriptor
    private var lastID: Int64 = 0
    private var session: String?
    private var unread: [UInt8] = []

    /// How long it may take to reply, in milliseconds.
    private static let patience = 60_000

    init(_ path: String, _ runDirectory: RunDirectory) throws {
        var (command, reply): ([CInt], [CInt]) = ([-1, -1], [-1, -1])
        guard cfloors_pipe(&command) == 0 else { throw LoadError(failed: "pipe") }
        let commandEnd = OwnedDescriptor(adopting: command[0])
        commands = OwnedDescriptor(adopting: command[1])
        guard cfloors_pipe(&reply) == 0 else { throw LoadError(failed: "pipe") }
        replies = OwnedDescriptor(adopting: reply[0])
        let replyEnd = OwnedDescriptor(adopting: reply[1])
        // One that has ended is told as an error.
        signal(SIGPIPE, SIG_IGN)
        let rights = geteuid() == 0 ? ["--no-sandbox"] : []
        process = try ChildProcess(
            "chromium",
            [
                path, "--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage",
                "--no-first-run", "--disable-background-networking", "--disable-component-update",
                "--disable-sync", "--disable-extensions", "--mute-audio",
                // Nothing but this machine.
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                "--user-data-dir=\(runDirectory.path)/chromium",
            ] + rights + ["about:blank"],
            descriptors: [commandEnd.rawValue, replyEnd.rawValue], log: "\(runDirectory.path)/chromium.log",
            guardian: runDirectory.loadTester)
        let tab = try call("Target.createTarget", ["url": "about:blank"])
        let attached = try call(
            "Target.attachToTarget", ["targetId": .string(tab.targetId ?? ""), "flatten": true])
        session = attached.sessionId
        try call("Page.enable", .object([]))
    }

    deinit {
        // Its child processes, too.
        kill(-process.id, SIGKILL)
        process.end()
    }

    /// Opens an address, and returns when the page has been loaded.
    func open(_ address: String) throws {
        _ = try value("String(window.isOld = true)")
        try call("Page.navigate", ["url": .string(address)])
        try wait(for: "the page", atMost: .seconds(60), firstPause: 1_000_000) {
            // Nothing can be evaluated in between.
            (try? value("String(!window.isOld && document.readyState === 'complete')")) == "true"
        }
    }

    /// The text that a JavaScript expression has as its value, or will have.
    func value(_ expression: String) throws -> String {
        let result = try call(
            "Runtime.evaluate",
            ["expression": .string(expression), "awaitPromise": true, "returnByValue": true])
        if let details = result.exceptionDetails {
            throw LoadError.missing(details.exception?.description ?? details.text ?? expression)
        }
        return result.result?.value ?? ""
    }

    func number(_ expression: String) throws -> Double {
        let text = try value(expression)
        guard let number = Double(text) else { throw LoadError.missing("\(expression): \(text)") }
        return number
    }

    // MARK: Commands

    private struct Reply: Decodable {
        struct Result: Decodable {
            var targetId: String?
            var sessionId: String?
            var result: Value?
            var exceptionDetails: Details?
        }

        struct Value: Decodable {
            var value: String?
            var description: String?
        }

        struct Details: Decodable {
            var text: String?
            var exception: Value?
        }

        struct Problem: Decodable {
            var message: String
        }

        var id: Int64?
        var result: Result?
        var error: Problem?
    }

    @discardableResult
    private func call(_ method: String, _ parameters: JSON) throws -> Reply.Result {
        lastID += 1
        var message: [JSON.Member] = [
            .init(name: "id", value: .integer(lastID)), .init(name: "method", value: .string(method)),
            .init(name: "params", value: parameters),
        ]
        if let session { message.append(.init(name: "sessionId", value: .string(session))) }
        try write(Array(JSON.object(message).text.utf8) + [0])
        let deadline = monotonicNow() + Int64(Self.patience) * 1_000_000
        while monotonicNow() < deadline {
            // Events have other members than replies.
            guard let reply = try? JSONDecoder().decode(Reply.self, from: Data(try read())),
                reply.id == lastID
            else { continue }
            if let error = reply.error { throw LoadError.missing("\(method): \(error.message)") }
            return reply.result ?? Reply.Result()
        }
        throw LoadError.timedOut("a reply of the browser to \(method)")
    }

    private func write(_ bytes: [UInt8]) throws {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes {
                Glibc.write(commands.rawValue, $0.baseAddress, $0.count)
            }
            guard count > 0 else { throw LoadError(failed: "write to the browser") }
            rest = rest.dropFirst(count)
        }
    }

    private func read() throws -> [UInt8] {
        while true {
            if let end = unread.firstIndex(of: 0) {
                defer { unread.removeFirst(end + 1) }
                return Array(unread[..<end])
            }
            var entry = pollfd(fd: replies.rawValue, events: Int16(POLLIN), revents: 0)
            guard poll(&entry, 1, CInt(Self.patience)) == 1 else {
                throw LoadError.timedOut("the browser")
            }
            var bytes = [UInt8](repeating: 0, count: 65_536)
            let count = Glibc.read(replies.rawValue, &bytes, bytes.count)
            guard count > 0 else { throw LoadError.childEnded("the browser", status: 0) }
            unread += bytes[..<count]
        }
    }
}
