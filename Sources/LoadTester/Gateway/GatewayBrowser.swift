import Chromium
import Glibc
import LinuxSystem
import Presentation

/// A browser with one tab, which shows the dashboard.
final class GatewayBrowser {
    private let tab: Chromium.Tab

    private final class Process {
        private let process: ChildProcess

        init(_ process: ChildProcess) { self.process = process }

        deinit {
            // Its child processes, too.
            kill(-process.id, SIGKILL)
            process.end()
        }
    }

    init(_ path: String, _ runDirectory: RunDirectory) throws {
        // One that has ended is told as an error.
        signal(SIGPIPE, SIG_IGN)
        let browser = try Chromium(directory: "\(runDirectory.path)/chromium") { arguments, descriptors in
            Process(
                try ChildProcess(
                    "chromium", [path] + arguments, descriptors: descriptors,
                    log: "\(runDirectory.path)/chromium.log", guardian: runDirectory.loadTester))
        }
        tab = try browser.tab()
        try tab.call("Page.enable")
    }

    /// Opens an address, and returns when the page has been loaded.
    func open(_ address: String) throws {
        _ = try value("String(window.isOld = true)")
        try tab.call("Page.navigate", ["url": .string(address)])
        try wait(for: "the page", atMost: .seconds(60), firstPause: 1_000_000) {
            // Nothing can be evaluated in between.
            (try? value("String(!window.isOld && document.readyState === 'complete')")) == "true"
        }
    }

    /// The text that a JavaScript expression has as its value, or will have.
    func value(_ expression: String) throws -> String {
        do throws(Chromium.Failure) {
            guard case .string(let text) = try tab.value(expression) else { return "" }
            return text
        } catch {
            throw LoadError.missing(error.description)
        }
    }

    func number(_ expression: String) throws -> Double {
        let text = try value(expression)
        guard let number = Double(text) else { throw LoadError.missing("\(expression): \(text)") }
        return number
    }
}
