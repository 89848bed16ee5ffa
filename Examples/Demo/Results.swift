import FoundationEssentials
import Histogram

/// What a run showed.
struct Results: Encodable {
    struct Latency: Encodable {
        var p50: Double
        var p99: Double
        var max: Double
    }

    var clients: Int
    var calls: Int
    var answered: Int
    var ended_properly: Int
    var lost_wakes: Int
    var late_keepalives: Int
    var keepalive_runs: Int
    var wakes: Int
    var wakes_by_reason: [String: Int]
    var wakes_without_reason: Int
    var wake_latency_us: Latency
    var asleep_percent: Double
    var asleep_at_end: Int
    var supervisor_kib: Int
    var phone_kib: Int
    var suspend: String
    var transport: String
    var registrar: String
    var seconds: Double

    /// Whether everything went as it must.
    var isGood: Bool {
        answered == calls && ended_properly == calls && lost_wakes == 0 && late_keepalives == 0
            && wakes_without_reason == 0 && asleep_at_end == clients
    }

    func json() throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys]
        return String(decoding: try encoder.encode(self), as: UTF8.self)
    }

    /// A table for people.
    func table() -> String {
        let reasons = wakes_by_reason.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }
        let rows: [(String, String)] = [
            ("registrar", "\(registrar), \(transport)"),
            ("suspended by", suspend),
            ("phones", "\(clients), \(asleep_at_end) asleep at the end"),
            ("calls", "\(calls)"),
            ("answered", "\(answered)"),
            ("ended properly", "\(ended_properly)"),
            ("lost wakes", "\(lost_wakes)"),
            ("keep-alive runs", "\(keepalive_runs), \(late_keepalives) late"),
            ("wakes", "\(wakes): \(reasons.joined(separator: ", "))"),
            ("wakes without reason", "\(wakes_without_reason)"),
            ("packet → handler, p50", "\(wake_latency_us.p50) µs"),
            ("packet → handler, p99", "\(wake_latency_us.p99) µs"),
            ("packet → handler, max", "\(wake_latency_us.max) µs"),
            ("time asleep", "\(asleep_percent) %"),
            ("memory, supervisor", "\(supervisor_kib) KiB"),
            ("memory, a phone", "\(phone_kib) KiB"),
            ("time", "\(seconds) s"),
        ]
        let width = rows.map(\.0.count).max() ?? 0
        return rows.map { name, value in
            name + String(repeating: " ", count: width + 2 - name.count) + value
        }.joined(separator: "\n")
    }
}

/// With so many digits after the point.
func rounded(_ value: Double, digits: Int) -> Double {
    let factor = digits == 0 ? 1.0 : (0..<digits).reduce(1.0) { result, _ in result * 10 }
    return (value * factor).rounded() / factor
}
