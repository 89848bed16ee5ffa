import Glibc

/// What is told on standard error while a run goes on.
package struct Progress: Sendable {
    private let isQuiet: Bool
    private let isTerminal: Bool

    package init(quiet: Bool) {
        isQuiet = quiet
        isTerminal = isatty(STDERR_FILENO) == 1
    }

    /// A step of the run.
    func say(_ text: String) {
        guard !isQuiet else { return }
        write(isTerminal ? "\r\u{1B}[K\(text)\n" : "\(text)\n")
    }

    /// How far a step is; the line is written over by the next. Nothing on anything but a terminal.
    func show(_ text: String) {
        guard !isQuiet, isTerminal else { return }
        write("\r\u{1B}[K\(text)")
    }

    private func write(_ text: String) {
        let bytes = Array(text.utf8)
        _ = Glibc.write(STDERR_FILENO, bytes, bytes.count)
    }
}
