import Glibc
import LinuxSystem
import Logging
import Synchronization

/// Writes each message as one line to the standard error, with one `write(2)`.
///
/// Under systemd, which sets `JOURNAL_STREAM`, a line starts with the priority that the journal understands
/// and has no time stamp: the journal has its own.
struct StandardErrorLog: LogHandler {
    /// The log level, shared by all copies: it can change while the daemon runs.
    final class Threshold: Sendable {
        private let index: Atomic<Int>

        init(_ level: Logger.Level) {
            index = Atomic(Self.index(of: level))
        }

        var level: Logger.Level {
            get { Logger.Level.allCases[index.load(ordering: .relaxed)] }
            set { index.store(Self.index(of: newValue), ordering: .relaxed) }
        }

        private static func index(of level: Logger.Level) -> Int {
            Logger.Level.allCases.firstIndex(of: level) ?? 0
        }
    }

    let threshold: Threshold
    var logLevel: Logger.Level {
        get { threshold.level }
        set { threshold.level = newValue }
    }
    var metadata: Logger.Metadata = [:]
    let forJournal: Bool

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        var line = forJournal ? priority(of: event.level) : timeStamp() + " \(event.level.rawValue) "
        line += event.message.description
        let all = event.metadata.map { metadata.merging($0) { _, new in new } } ?? metadata
        for (key, value) in all.sorted(by: { $0.key < $1.key }) {
            line += " \(key)=\(value)"
        }
        if let error = event.error { line += " error=\(error)" }
        writeToStandardError(line)
    }

    /// `<3>` to `<7>`, as in syslog(3).
    private func priority(of level: Logger.Level) -> String {
        switch level {
        case .trace, .debug: "<7>"
        case .info: "<6>"
        case .notice: "<5>"
        case .warning: "<4>"
        case .error: "<3>"
        case .critical: "<2>"
        }
    }

    /// `2026-01-31T15:04:05.123Z`.
    private func timeStamp() -> String {
        var now = timespec()
        unsafe clock_gettime(CLOCK_REALTIME, &now)
        var broken = unsafe tm()
        guard unsafe gmtime_r(&now.tv_sec, &broken) != nil else { return "-" }
        let date = unsafe [
            padded(Int(broken.tm_year) + 1_900, 4), padded(Int(broken.tm_mon) + 1, 2),
            padded(Int(broken.tm_mday), 2),
        ]
        let time = unsafe [broken.tm_hour, broken.tm_min, broken.tm_sec].map { padded(Int($0), 2) }
        return date.joined(separator: "-") + "T" + time.joined(separator: ":")
            + "." + padded(now.tv_nsec / 1_000_000, 3) + "Z"
    }

    private func padded(_ number: Int, _ width: Int) -> String {
        let digits = String(number)
        return String(repeating: "0", count: max(0, width - digits.count)) + digits
    }
}

/// Writes a line at once and as a whole. Control characters in it, which may come from a client, are escaped.
///
/// A reader that does not keep up misses lines: clients do not wait for it. A pipe that is writable takes at
/// least `PIPE_BUF` bytes without blocking, so a line is no longer than that.
func writeToStandardError(_ line: String) {
    var bytes = Array(Escaping.escaped(line).utf8.prefix(4_095))
    bytes.append(UInt8(ascii: "\n"))
    var entry = pollfd(fd: STDERR_FILENO, events: CShort(POLLOUT), revents: 0)
    guard unsafe poll(&entry, 1, 0) == 1, CInt(entry.revents) & POLLOUT != 0 else { return }
    // If this fails there is no way left to report it.
    _ = unsafe bytes.withUnsafeBytes { unsafe write(STDERR_FILENO, $0.baseAddress, $0.count) }
}
