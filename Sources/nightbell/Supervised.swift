import ArgumentParser
import Glibc
import LinuxSystem
import Manifests
import Nightbell
import Presentation

/// Options of every command that talks to a supervisor.
struct SupervisorOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The supervisor's control socket.", valueName: "path"))
    var socket: String?

    @Flag(help: "Print JSON for programs.")
    var json = false

    func validate() throws {
        try validateSocketPath(socket)
    }

    /// Connects, passes the connection on, and turns an error into a sentence and an exit code.
    ///
    /// - Parameter client: the client of the request, to suggest another name if there is none of this one.
    func withSupervisor(
        about client: String? = nil, within time: Duration = .seconds(5),
        _ body: (consuming Administration) throws(NightbellError) -> Void
    ) throws(ExitCode) {
        do {
            try body(try Administration(socketPath: socket, requestTimeout: time))
        } catch {
            let missing = error.code == .noSuchClient ? client : nil
            complain(error.description + (missing.map { suggestion(for: $0) } ?? ""))
            throw ExitCode(error.exitCode)
        }
    }

    /// A sentence with the most similar identifier of a client that the caller may see, or nothing.
    func suggestion(for client: String) -> String {
        do throws(NightbellError) {
            var administration = try Administration(socketPath: socket)
            let clients = try administration.list()
            let nearest = Spelling.nearest(to: client, among: clients.map(\.identifier))
            return nearest.map { " Did you mean \($0)?" } ?? ""
        } catch {
            return ""
        }
    }
}

/// For example `--socket "$SOCKET"` with an empty variable.
func validateSocketPath(_ path: String?) throws {
    guard path?.isEmpty != true else {
        throw ValidationError(
            "--socket needs a path, such as /run/nightbell/nightbell.sock; leave it out to look in the usual places"
        )
    }
}

extension NightbellError {
    var exitCode: Int32 {
        switch code {
        case .cannotConnect where errorNumber == EACCES || errorNumber == EPERM: 5
        case .cannotConnect, .connectionLost, .disconnected, .requestTimedOut, .closed: 3
        case .noSuchClient: 4
        case .permissionDenied: 5
        default: 1
        }
    }
}

/// Writes lines to the standard output at once, so that a reader of a pipe sees them as they come.
func emit(_ lines: [String]) {
    emit(text: lines.map { $0 + "\n" }.joined())
}

func emit(text: String) {
    write(text, to: STDOUT_FILENO)
}

func emit(_ json: JSON) {
    emit([json.text])
}

/// Reports an error to the user on the standard error.
func complain(_ message: String) {
    write("nightbell: \(printable(message))\n", to: STDERR_FILENO)
}

private func write(_ text: String, to descriptor: CInt) {
    var bytes = Array(text.utf8)[...]
    while !bytes.isEmpty {
        let count = unsafe bytes.withUnsafeBytes { unsafe Glibc.write(descriptor, $0.baseAddress, $0.count) }
        if count < 0 && errno == EINTR { continue }
        guard count > 0 else { return }
        bytes = bytes.dropFirst(count)
    }
}

/// The width of the terminal at the standard output; nil if it is none.
var terminalWidth: Int? { terminalSize.map { Int($0.ws_col) } }

/// 80 × 24 where a terminal has no size.
var terminalSize: winsize? {
    guard isatty(STDOUT_FILENO) == 1 else { return nil }
    var size = winsize()
    guard unsafe ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0 else {
        return winsize(ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0)
    }
    return size
}

/// Whether the standard output has colours.
var paint: Paint {
    Paint(
        isTerminal: isatty(STDOUT_FILENO) == 1, noColor: Environment.value("NO_COLOR"),
        terminal: Environment.value("TERM"))
}

/// Whether the standard output is a terminal that can replace earlier output.
var movesCursor: Bool {
    Paint.knowsCommands(
        isTerminal: isatty(STDOUT_FILENO) == 1, terminal: Environment.value("TERM"))
}
