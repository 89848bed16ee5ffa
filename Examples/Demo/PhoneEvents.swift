import Glibc
import Histogram

/// The reports of the phones, added up.
@MainActor
final class PhoneEvents {
    /// Since `reset`.
    struct Tally {
        var wakes = 0
        var wakesByReason: [String: Int] = [:]
        var wakesWithoutReason = 0
        var callsAnswered = 0
        var callsEnded = 0
        var keepAliveRuns = 0
        var lateKeepAlives = 0
        /// From a packet to the handler that reads it, in nanoseconds.
        var wakeLatency = Histogram<UInt64>(numberOfSignificantValueDigits: .three)
        var troubles: [String] = []

        /// The same in microseconds.
        var latency: Results.Latency {
            func microseconds(_ nanoseconds: UInt64) -> Double {
                rounded(Double(nanoseconds) / 1_000, digits: 1)
            }
            return Results.Latency(
                p50: microseconds(wakeLatency.valueAtPercentile(50)),
                p99: microseconds(wakeLatency.valueAtPercentile(99)),
                max: microseconds(wakeLatency.maxRecorded))
        }
    }

    private(set) var tally = Tally()
    private(set) var registered: Set<String> = []
    /// The end of the pipe for the phones.
    private(set) var writeEnd: CInt
    private let readEnd: CInt
    private var partial: [UInt8] = []

    init(loop: Loop) throws {
        var ends: [CInt] = [-1, -1]
        guard pipe(&ends) == 0 else { throw DemoError.system("pipe", code: errno) }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        _ = fcntl(ends[0], F_SETFL, O_NONBLOCK)
        readEnd = ends[0]
        writeEnd = ends[1]
        loop.add(Loop.Source(descriptor: readEnd) { [weak self] in self?.read() })
    }

    /// Resets the tally.
    func reset() { tally = Tally() }

    func forgetRegistrations() { registered.removeAll() }

    private func read() {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        let count = Glibc.read(readEnd, &buffer, buffer.count)
        guard count > 0 else { return }
        partial += buffer[..<count]
        while let end = partial.firstIndex(of: UInt8(ascii: "\n")) {
            let line = Array(partial[..<end])
            partial.removeFirst(end + 1)
            guard let report = Report(line: line) else {
                tally.troubles.append("unreadable report: \(String(decoding: line, as: UTF8.self))")
                continue
            }
            record(report)
        }
    }

    private func record(_ report: Report) {
        let phone = report.text("phone") ?? "?"
        switch report.text("event") {
        case "registered":
            registered.insert(phone)
        case "answered":
            tally.callsAnswered += 1
        case "ended":
            tally.callsEnded += 1
        case "keep_alive":
            tally.keepAliveRuns += 1
            if report.number("late_ms", or: 0) > 0 { tally.lateKeepAlives += 1 }
        case "wake":
            recordWake(report)
        case "registration_failed", "connection_lost", "staying_awake", "supervisor_lost",
            "background_time_expiring":
            tally.troubles.append("\(phone): \(report.text("event") ?? "") \(report.text("reason") ?? "")")
        default:
            return
        }
    }

    private func recordWake(_ report: Report) {
        tally.wakes += 1
        let reasons = report.list("reasons")
        for reason in reasons { tally.wakesByReason[reason, default: 0] += 1 }
        if reasons.isEmpty || !report.flag("explained") { tally.wakesWithoutReason += 1 }
        let latency = report.number("latency_ns", or: -1)
        if latency >= 0 { tally.wakeLatency.record(UInt64(latency)) }
    }
}
