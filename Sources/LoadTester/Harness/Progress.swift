import Glibc

/// What is told on standard error while a run goes on.
package struct Progress: Sendable {
    private let isQuiet: Bool
    private let descriptor: CInt
    private let isTerminal: Bool

    package init(quiet: Bool, to descriptor: CInt = STDERR_FILENO) {
        isQuiet = quiet
        self.descriptor = descriptor
        isTerminal = isatty(descriptor) == 1
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

    /// Takes away what was shown last: something else is told now.
    func clear() { show("") }

    private func write(_ text: String) {
        let bytes = Array(text.utf8)
        _ = Glibc.write(descriptor, bytes, bytes.count)
    }
}
