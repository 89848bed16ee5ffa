import Glibc

/// Writes a line to the standard error.
func complain(_ text: String) {
    let line = Array("nightbell-gateway: \(text)\n".utf8)
    _ = write(STDERR_FILENO, line, line.count)
}
