import Glibc

/// Writes events as lines of JSON, for other programs. Each line has `t` (nanoseconds since
/// 1970), `phone` and `event`.
struct EventLog {
    enum Value {
        case text(String)
        case list([String])
        case number(Int64)
        case flag(Bool)
    }

    private let phone: String
    private let descriptor: CInt

    /// `target` is a file to append to, `-` for standard output, or `fd:N` for an open descriptor.
    init(_ target: String?, phone: String) throws(EventLogError) {
        self.phone = phone
        switch target {
        case nil:
            descriptor = -1
        case "-":
            descriptor = STDOUT_FILENO
        case .some(let text) where text.hasPrefix("fd:"):
            guard let number = CInt(text.dropFirst(3)), fcntl(number, F_GETFD) >= 0 else {
                throw EventLogError(target: text, code: EBADF)
            }
            descriptor = number
        case .some(let path):
            descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o644)
            guard descriptor >= 0 else { throw EventLogError(target: path, code: errno) }
        }
    }

    func write(_ event: String, _ values: KeyValuePairs<String, Value> = [:]) {
        guard descriptor >= 0 else { return }
        var line = "{\"t\":\(wallClock()),\"phone\":\(quoted(phone)),\"event\":\(quoted(event))"
        for (key, value) in values { line += ",\(quoted(key)):\(json(value))" }
        line += "}\n"
        // One write for each line, so that the lines of phones that share a pipe do not mix.
        let bytes = Array(line.utf8)
        _ = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
    }

    private func json(_ value: Value) -> String {
        switch value {
        case .text(let text): quoted(text)
        case .list(let texts): "[\(texts.map(quoted).joined(separator: ","))]"
        case .number(let number): String(number)
        case .flag(let flag): flag ? "true" : "false"
        }
    }

    private func quoted(_ text: String) -> String {
        var result = "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"", "\\": result += "\\\(scalar)"
            case "\u{0}"..."\u{1F}": result += "?"
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result + "\""
    }
}

struct EventLogError: Error, CustomStringConvertible {
    var target: String
    var code: CInt

    var description: String { "\(target): \(String(cString: strerror(code)))" }
}

/// The kernel's wall clock, the source of its time stamps of packets, in nanoseconds since 1970.
func wallClock() -> Int64 {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
}

extension Duration {
    var milliseconds: Int64 { nanoseconds / 1_000_000 }
    var nanoseconds: Int64 { components.seconds * 1_000_000_000 + components.attoseconds / 1_000_000_000 }
}
