import Glibc

/// Messages on standard error while a run goes on.
package struct Progress: Sendable {
    private let isQuiet: Bool
    private let descriptor: CInt
    private let isTerminal: Bool

    package init(quiet: Bool, to descriptor: CInt = STDERR_FILENO) {
        isQuiet = quiet
        self.descriptor = descriptor
        isTerminal = isatty(descriptor) == 1
    }

    /// Prints a step of the run.
    func say(_ text: String) {
        guard !isQuiet else { return }
        write(isTerminal ? "\r\u{1B}[K\(text)\n" : "\(text)\n")
    }

    /// Shows the progress of a step; the next line overwrites it. Prints nothing unless on a terminal.
    func show(_ text: String) {
        guard !isQuiet, isTerminal else { return }
        write("\r\u{1B}[K\(text)")
    }

    /// Clears the line that was shown last.
    func clear() { show("") }

    private func write(_ text: String) {
        let bytes = Array(text.utf8)
        _ = Glibc.write(descriptor, bytes, bytes.count)
    }
}
