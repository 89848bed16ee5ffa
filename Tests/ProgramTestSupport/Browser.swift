import Chromium
import EdgeTestSupport
import Foundation
import Glibc
package import Presentation

/// A Chromium without a window.
package final class Browser {
    package static let path = "/usr/bin/chromium"
    package static var isInstalled: Bool { access(path, X_OK) == 0 }

    private final class Process {
        private let directory: URL
        private let pid: pid_t

        init(_ directory: URL, _ arguments: [String], _ descriptors: [CInt]) throws {
            self.directory = directory
            var actions = posix_spawn_file_actions_t()
            posix_spawn_file_actions_init(&actions)
            defer { posix_spawn_file_actions_destroy(&actions) }
            for descriptor: CInt in 0...2 {
                posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0)
            }
            for (index, descriptor) in descriptors.enumerated() {
                posix_spawn_file_actions_adddup2(&actions, descriptor, 3 + CInt(index))
            }
            let environment = ["HOME": directory.path, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"]
            pid = try spawn(Browser.path, arguments, environment: environment, &actions, leadsGroup: true)
        }

        deinit {
            // Ends its child processes, too.
            kill(-pid, SIGKILL)
            var status: CInt = 0
            while waitpid(pid, &status, 0) == -1, errno == EINTR {}
            try? FileManager.default.removeItem(at: directory)
        }
    }

    private let chromium: Chromium

    /// Errors in pages: exceptions, refusals of the page's security policy, and the like.
    package var complaints: [String] { chromium.complaints }

    package init() throws {
        let directory = FileManager.default.temporaryDirectory
            .appendingPathComponent("nightbell-browser-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        chromium = try Chromium(directory: directory.path) { try Process(directory, $0, $1) }
    }

    /// Opens an address in a tab.
    package func open(_ address: String) throws -> Page {
        let page = Page(try chromium.tab())
        for domain in ["Page", "Runtime", "Log"] { try page.call("\(domain).enable") }
        try page.call("Page.navigate", ["url": .string(address)])
        return page
    }
}

/// One tab.
package struct Page {
    private let tab: Chromium.Tab

    fileprivate init(_ tab: Chromium.Tab) { self.tab = tab }

    @discardableResult
    package func call(_ method: String, _ parameters: JSON = [:]) throws -> JSON {
        try tab.call(method, parameters)
    }

    /// The value of a JavaScript expression, if it is a plain one.
    package func value(_ expression: String) throws -> Any? {
        switch try tab.value(expression) {
        case .bool(let value): value
        case .integer(let value): Int(value)
        case .number(let value): value
        case .string(let value): value
        case .null, .unsigned, .array, .object: nil
        }
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
        try call("Input.insertText", ["text": .string(text)])
        guard thenEnter else { return }
        for type in ["keyDown", "keyUp"] {
            try call(
                "Input.dispatchKeyEvent",
                [
                    "type": .string(type), "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13,
                    "text": type == "keyDown" ? "\r" : "",
                ])
        }
    }

    /// Answers the question that the page asks (`confirm`), or will ask soon.
    ///
    /// - Returns: false: there was none, or another one.
    package func answers(_ question: String, _ isYes: Bool) throws -> Bool {
        let isAnswered = eventually(within: 20_000) {
            (try? call("Page.handleJavaScriptDialog", ["accept": .bool(isYes)])) != nil
        }
        return isAnswered && tab.browser.lastQuestion == question
    }

    /// The middle of an element that an expression names, in the window.
    package func middle(of element: String) throws -> (x: Int, y: Int) {
        let box = "\(element).getBoundingClientRect()"
        let x = try value("Math.round(\(box).x + \(box).width / 2)") as? Int
        let y = try value("Math.round(\(box).y + \(box).height / 2)") as? Int
        guard let x, let y else { throw Chromium.Failure("\(element) is nowhere") }
        return (x, y)
    }

    /// - Parameter type: `mouseMoved`, `mousePressed` or `mouseReleased`.
    package func mouse(_ type: String, at place: (x: Int, y: Int)) throws {
        let button = type == "mouseMoved" ? "none" : "left"
        try call(
            "Input.dispatchMouseEvent",
            [
                "type": .string(type), "x": .integer(Int64(place.x)), "y": .integer(Int64(place.y)),
                "button": .string(button), "clickCount": button == "left" ? 1 : 0,
            ])
    }

    /// Saves a picture in the directory `NIGHTBELL_SCREENSHOTS`, if that is set.
    package func keepPicture(_ name: String) throws {
        guard let directory = ProcessInfo.processInfo.environment["NIGHTBELL_SCREENSHOTS"] else { return }
        guard case .string(let picture) = try call("Page.captureScreenshot")["data"],
            let data = Data(base64Encoded: picture)
        else { throw Chromium.Failure("no picture") }
        try data.write(to: URL(fileURLWithPath: directory).appendingPathComponent("\(name).png"))
    }

    package func quoted(_ text: String) -> String {
        "'" + text.replacing("\\", with: "\\\\").replacing("'", with: "\\'").replacing("\n", with: "\\n")
            + "'"
    }
}
