/// The results of a run.
struct Results {
    struct Latency {
        var p50: Double
        var p99: Double
        var max: Double
    }

    var clients: Int
    var calls: Int
    var answered: Int
    var endedProperly: Int
    var lostWakes: Int
    var lateKeepAlives: Int
    var keepAliveRuns: Int
    var wakes: Int
    var wakesByReason: [String: Int]
    var wakesWithoutReason: Int
    var wakeLatencyMicroseconds: Latency
    var asleepPercent: Double
    var asleepAtEnd: Int
    var supervisorKibibytes: Int
    var phoneKibibytes: Int
    var suspend: String
    var transport: String
    var registrar: String
    var seconds: Double

    /// Whether every expectation was met.
    var isGood: Bool {
        answered == calls && endedProperly == calls && lostWakes == 0 && lateKeepAlives == 0
            && wakesWithoutReason == 0 && asleepAtEnd == clients
    }

    /// The same for programs, on one line.
    func json() -> String {
        func object(_ members: [(String, String)]) -> String {
            "{\(members.map { "\"\($0)\":\($1)" }.joined(separator: ","))}"
        }
        let latency = wakeLatencyMicroseconds
        // No text here needs escapes: all of it is the demo's own.
        return object([
            ("clients", "\(clients)"), ("calls", "\(calls)"), ("answered", "\(answered)"),
            ("ended_properly", "\(endedProperly)"), ("lost_wakes", "\(lostWakes)"),
            ("late_keepalives", "\(lateKeepAlives)"), ("keepalive_runs", "\(keepAliveRuns)"),
            ("wakes", "\(wakes)"),
            (
                "wakes_by_reason",
                object(wakesByReason.sorted { $0.key < $1.key }.map { ($0.key, "\($0.value)") })
            ),
            ("wakes_without_reason", "\(wakesWithoutReason)"),
            (
                "wake_latency_us",
                object([("p50", "\(latency.p50)"), ("p99", "\(latency.p99)"), ("max", "\(latency.max)")])
            ),
            ("asleep_percent", "\(asleepPercent)"), ("asleep_at_end", "\(asleepAtEnd)"),
            ("supervisor_kib", "\(supervisorKibibytes)"), ("phone_kib", "\(phoneKibibytes)"),
            ("suspend", "\"\(suspend)\""), ("transport", "\"\(transport)\""),
            ("registrar", "\"\(registrar)\""),
            ("seconds", "\(seconds)"),
        ])
    }

    /// A table for people.
    func table() -> String {
        let reasons = wakesByReason.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }
        let rows: [(String, String)] = [
            ("registrar", "\(registrar), \(transport)"),
            ("suspended by", suspend),
            ("phones", "\(clients), \(asleepAtEnd) asleep at the end"),
            ("calls", "\(calls)"),
            ("answered", "\(answered)"),
            ("ended properly", "\(endedProperly)"),
            ("lost wakes", "\(lostWakes)"),
            ("keep-alive runs", "\(keepAliveRuns), \(lateKeepAlives) late"),
            ("wakes", "\(wakes): \(reasons.joined(separator: ", "))"),
            ("wakes without reason", "\(wakesWithoutReason)"),
            ("packet → handler, p50", "\(wakeLatencyMicroseconds.p50) µs"),
            ("packet → handler, p99", "\(wakeLatencyMicroseconds.p99) µs"),
            ("packet → handler, max", "\(wakeLatencyMicroseconds.max) µs"),
            ("time asleep", "\(asleepPercent) %"),
            ("memory, supervisor", "\(supervisorKibibytes) KiB"),
            ("memory, a phone", "\(phoneKibibytes) KiB"),
            ("time", "\(seconds) s"),
        ]
        let width = rows.map(\.0.count).max() ?? 0
        return rows.map { name, value in
            name + String(repeating: " ", count: width + 2 - name.count) + value
        }.joined(separator: "\n")
    }
}

/// Formats with this many digits after the point.
func rounded(_ value: Double, digits: Int) -> Double {
    let factor = digits == 0 ? 1.0 : (0..<digits).reduce(1.0) { result, _ in result * 10 }
    return (value * factor).rounded() / factor
}
