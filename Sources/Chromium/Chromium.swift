import Glibc
import LinuxSystem
package import Presentation

/// A Chromium without a window, driven through two pipes: commands and replies are JSON, each ended by a zero byte
/// (`--remote-debugging-pipe`). For measurements and tests.
package final class Chromium {
    package struct Failure: Error, CustomStringConvertible {
        package let description: String

        package init(_ description: String) { self.description = description }
    }

    /// Ends with the last reference to it.
    private let process: AnyObject
    private let commands: OwnedDescriptor
    private let replies: OwnedDescriptor
    private var lastID: Int64 = 0
    private var unread: [UInt8] = []
    /// Errors in pages: exceptions, refusals of the page's security policy, and the like.
    package private(set) var complaints: [String] = []
    /// The last question that a page has asked (`confirm`), or what it has told (`alert`).
    package private(set) var lastQuestion: String?

    /// How long it may take to reply, in milliseconds.
    private static let patience: CInt = 60_000

    /// - Parameters:
    ///   - directory: its own, for its profile.
    ///   - start: starts the browser with these arguments and descriptors 3 and 4. The object that it returns
    ///     ends the browser when it is released.
    package init(
        directory: String, start: (_ arguments: [String], _ descriptors: [CInt]) throws -> AnyObject
    ) throws {
        let (command, reply) = (try Self.pipe(), try Self.pipe())
        let commandEnd = OwnedDescriptor(adopting: command.read)
        commands = OwnedDescriptor(adopting: command.write)
        replies = OwnedDescriptor(adopting: reply.read)
        let replyEnd = OwnedDescriptor(adopting: reply.write)
        process = try start(
            [
                "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
                "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                "--disable-component-update", "--disable-sync", "--disable-extensions", "--mute-audio",
                // Nothing but this machine.
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                "--user-data-dir=\(directory)", "about:blank",
            ], [commandEnd.rawValue, replyEnd.rawValue])
    }

    /// Above the numbers that the browser expects.
    private static func pipe() throws(SystemError) -> (read: CInt, write: CInt) {
        var ends: [CInt] = [-1, -1]
        _ = try systemCall("pipe") { Glibc.pipe(&ends) }
        defer { for end in ends { close(end) } }
        return (fcntl(ends[0], F_DUPFD_CLOEXEC, 10), fcntl(ends[1], F_DUPFD_CLOEXEC, 10))
    }

    /// A new tab.
    package func tab() throws(Failure) -> Tab {
        let target = try call("Target.createTarget", ["url": "about:blank"])["targetId"]
        let attached = try call("Target.attachToTarget", ["targetId": target, "flatten": true])
        return Tab(self, session: attached["sessionId"])
    }

    // MARK: Commands

    /// Sends a command, and waits for its result.
    ///
    /// - Parameter session: of a tab; null: it is for the browser.
    @discardableResult
    package func call(
        _ method: String, _ parameters: JSON = [:], session: JSON = .null
    ) throws(Failure) -> JSON {
        lastID += 1
        var message: [JSON.Member] = [
            .init(name: "id", value: .integer(lastID)), .init(name: "method", value: .string(method)),
            .init(name: "params", value: parameters),
        ]
        if session != .null { message.append(.init(name: "sessionId", value: session)) }
        try write(Array(JSON.object(message).text.utf8) + [0])
        while true {
            let reply = try read()
            note(reply)
            guard reply["id"] == .integer(lastID) else { continue }
            guard reply["error"] == .null else { throw Failure("\(method): \(reply["error"].text)") }
            return reply["result"]
        }
    }

    private func note(_ event: JSON) {
        let details = event["params"]
        switch event["method"] {
        case "Runtime.exceptionThrown": complaints.append(details.text)
        case "Page.javascriptDialogOpening":
            if case .string(let question) = details["message"] { lastQuestion = question }
        case "Log.entryAdded":
            let entry = details["entry"]
            // Refused connections are not errors of the page.
            if entry["level"] == "error", entry["source"] != "network" { complaints.append(entry.text) }
        default: break
        }
    }

    private func write(_ bytes: [UInt8]) throws(Failure) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(commands.rawValue, $0.baseAddress, $0.count) }
            guard count > 0 else { throw Failure("the browser takes no commands: errno \(errno)") }
            rest = rest.dropFirst(count)
        }
    }

    private func read() throws(Failure) -> JSON {
        while true {
            if let end = unread.firstIndex(of: 0) {
                defer { unread.removeFirst(end + 1) }
                return try JSON(reading: unread[..<end])
            }
            guard
                !Poll.wait(replies.rawValue, for: .readable, timeoutMilliseconds: Self.patience).isEmpty
            else { throw Failure("the browser says nothing") }
            var bytes = [UInt8](repeating: 0, count: 1 << 20)
            let count = Glibc.read(replies.rawValue, &bytes, bytes.count)
            guard count > 0 else { throw Failure("the browser has ended") }
            unread += bytes[..<count]
        }
    }
}

extension Chromium {
    /// A tab. It keeps the browser.
    package struct Tab {
        package let browser: Chromium
        private let session: JSON

        fileprivate init(_ browser: Chromium, session: JSON) {
            self.browser = browser
            self.session = session
        }

        @discardableResult
        package func call(_ method: String, _ parameters: JSON = [:]) throws(Failure) -> JSON {
            try browser.call(method, parameters, session: session)
        }

        /// The value that a JavaScript expression has, or will have.
        package func value(_ expression: String) throws(Failure) -> JSON {
            let result = try call(
                "Runtime.evaluate",
                ["expression": .string(expression), "awaitPromise": true, "returnByValue": true])
            let details = result["exceptionDetails"]
            guard details == .null else { throw Failure(details.text) }
            return result["result"]["value"]
        }
    }
}
