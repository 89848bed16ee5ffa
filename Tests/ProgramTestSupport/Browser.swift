import EdgeTestSupport
import Foundation
import Glibc

/// Chromium without a window, driven through two pipes: commands and replies are JSON, each ended by a zero
/// byte (`--remote-debugging-pipe`).
package final class Browser {
    package static let path = "/usr/bin/chromium"
    package static var isInstalled: Bool { access(path, X_OK) == 0 }

    package struct Failure: Error, CustomStringConvertible {
        package let description: String

        package init(description: String) { self.description = description }
    }

    package typealias Object = [String: Any]

    private let directory: URL
    private let pid: pid_t
    private let commands: CInt
    private let replies: CInt
    private var lastID = 0
    private var unread: [UInt8] = []
    /// Errors in pages: exceptions, refusals of the page's security policy, and the like.
    package private(set) var complaints: [String] = []

    package init() throws {
        directory = FileManager.default.temporaryDirectory
            .appendingPathComponent("nightbell-browser-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        let (commandEnd, commands) = try Self.pipe()
        let (replies, replyEnd) = try Self.pipe()
        defer {
            close(commandEnd)
            close(replyEnd)
        }
        self.commands = commands
        self.replies = replies
        pid = try Self.spawn(
            [
                "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
                "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                "--disable-component-update", "--disable-sync", "--disable-extensions", "--mute-audio",
                // Nothing but this machine.
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                "--user-data-dir=\(directory.path)", "about:blank",
            ], home: directory.path, commandEnd, replyEnd)
    }

    deinit {
        // Ends its child processes, too.
        kill(-pid, SIGKILL)
        var status: CInt = 0
        while waitpid(pid, &status, 0) == -1, errno == EINTR {}
        close(commands)
        close(replies)
        try? FileManager.default.removeItem(at: directory)
    }

    /// Above the descriptor numbers that the browser expects.
    private static func pipe() throws -> (CInt, CInt) {
        var ends: [CInt] = [-1, -1]
        guard Glibc.pipe(&ends) == 0 else { throw Failure(description: "no pipe: errno \(errno)") }
        defer { for end in ends { close(end) } }
        return (fcntl(ends[0], F_DUPFD_CLOEXEC, 10), fcntl(ends[1], F_DUPFD_CLOEXEC, 10))
    }

    private static func spawn(
        _ arguments: [String], home: String, _ commandEnd: CInt, _ replyEnd: CInt
    ) throws -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for descriptor: CInt in 0...2 {
            posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0)
        }
        posix_spawn_file_actions_adddup2(&actions, commandEnd, 3)
        posix_spawn_file_actions_adddup2(&actions, replyEnd, 4)
        let environment = ["HOME": home, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"]
        return try EdgeTestSupport.spawn(
            path, arguments, environment: environment, &actions, leadsGroup: true)
    }

    /// Opens an address in a tab.
    package func open(_ address: String) throws -> Page {
        let target = try call("Target.createTarget", ["url": "about:blank"])["targetId"] as? String ?? ""
        let attached = try call("Target.attachToTarget", ["targetId": target, "flatten": true])
        let page = Page(self, session: attached["sessionId"] as? String ?? "")
        for domain in ["Page", "Runtime", "Log"] { try page.call("\(domain).enable") }
        try page.call("Page.navigate", ["url": address])
        return page
    }

    /// Sends a command, and waits for its result.
    @discardableResult
    package func call(_ method: String, _ parameters: Object = [:], session: String? = nil) throws -> Object {
        lastID += 1
        var message: Object = ["id": lastID, "method": method, "params": parameters]
        if let session { message["sessionId"] = session }
        try write(try JSONSerialization.data(withJSONObject: message) + [0])
        while true {
            let reply = try read()
            note(reply)
            guard reply["id"] as? Int == lastID else { continue }
            if let error = reply["error"] { throw Failure(description: "\(method): \(error)") }
            return reply["result"] as? Object ?? [:]
        }
    }

    private func note(_ event: Object) {
        let details = event["params"] as? Object ?? [:]
        switch event["method"] as? String {
        case "Runtime.exceptionThrown": complaints.append("\(details)")
        case "Log.entryAdded":
            let entry = details["entry"] as? Object ?? [:]
            // Refused connections are not errors of the page.
            if entry["level"] as? String == "error", entry["source"] as? String != "network" {
                complaints.append("\(entry)")
            }
        default: break
        }
    }

    private func write(_ data: Data) throws {
        var rest = [UInt8](data)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(commands, $0.baseAddress, $0.count) }
            guard count > 0 else { throw Failure(description: "it takes no commands: errno \(errno)") }
            rest = rest.dropFirst(count)
        }
    }

    private func read() throws -> Object {
        while true {
            if let end = unread.firstIndex(of: 0) {
                defer { unread.removeFirst(end + 1) }
                let message = try JSONSerialization.jsonObject(with: Data(unread[..<end]))
                return message as? Object ?? [:]
            }
            var entry = pollfd(fd: replies, events: CShort(POLLIN), revents: 0)
            guard poll(&entry, 1, 60_000) == 1 else { throw Failure(description: "it says nothing") }
            var bytes = [UInt8](repeating: 0, count: 1 << 20)
            let count = Glibc.read(replies, &bytes, bytes.count)
            guard count > 0 else { throw Failure(description: "it has ended") }
            unread += bytes[..<count]
        }
    }
}

/// One tab.
package struct Page {
    private let browser: Browser
    private let session: String

    package init(_ browser: Browser, session: String) {
        self.browser = browser
        self.session = session
    }

    @discardableResult
    package func call(_ method: String, _ parameters: Browser.Object = [:]) throws -> Browser.Object {
        try browser.call(method, parameters, session: session)
    }

    /// The value of a JavaScript expression.
    package func value(_ expression: String) throws -> Any? {
        let result = try call(
            "Runtime.evaluate", ["expression": expression, "awaitPromise": true, "returnByValue": true])
        if let details = result["exceptionDetails"] { throw Browser.Failure(description: "\(details)") }
        return (result["result"] as? Browser.Object)?["value"]
    }

    package func text(_ selector: String) throws -> String {
        try value("document.querySelector(\(quoted(selector)))?.textContent ?? ''") as? String ?? ""
    }

    /// Whether a condition holds in the page, or will soon.
    package func becomes(_ condition: String, within milliseconds: Int = 20_000) throws -> Bool {
        let look = """
            new Promise((done) => {
                const end = Date.now() + \(milliseconds);
                const look = () => {
                    let holds = false;
                    try { holds = Boolean(\(condition)); } catch { }
                    if (holds || Date.now() > end) done(holds); else setTimeout(look, 20);
                };
                look();
            })
            """
        return try value(look) as? Bool ?? false
    }

    /// Types text into the element of this selector.
    package func type(_ text: String, into selector: String, thenEnter: Bool = false) throws {
        _ = try value("document.querySelector(\(quoted(selector))).select()")
        try call("Input.insertText", ["text": text])
        guard thenEnter else { return }
        for type in ["keyDown", "keyUp"] {
            var key: Browser.Object = [
                "type": type, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13,
            ]
            if type == "keyDown" { key["text"] = "\r" }
            try call("Input.dispatchKeyEvent", key)
        }
    }

    /// Saves a picture in the directory `NIGHTBELL_SCREENSHOTS`, if that is set.
    package func keepPicture(_ name: String) throws {
        guard let directory = ProcessInfo.processInfo.environment["NIGHTBELL_SCREENSHOTS"] else { return }
        let picture = try call("Page.captureScreenshot")["data"] as? String ?? ""
        guard let data = Data(base64Encoded: picture) else {
            throw Browser.Failure(description: "no picture")
        }
        try data.write(to: URL(fileURLWithPath: directory).appendingPathComponent("\(name).png"))
    }

    package func quoted(_ text: String) -> String {
        "'" + text.replacing("\\", with: "\\\\").replacing("'", with: "\\'").replacing("\n", with: "\\n")
            + "'"
    }
}
