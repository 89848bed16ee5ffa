import Nightbell
import StatusReports

/// The metrics as Prometheus reads them (text format 0.0.4). All but those of the gateway itself come from the
/// supervisor or its events, so that nothing is counted twice. Labels have few values; clients are named only on request.
struct MetricsPage: Sendable {
    let hub: EventHub
    let durations: WakeDurations
    let requests: OwnMetrics

    /// With more clients than this none is named: each would be a time series.
    static let mostNamedClients = 1_000

    /// - Parameters:
    ///   - status: nil: the supervisor did not answer.
    ///   - clients: the same.
    func text(_ status: SupervisorStatus?, _ clients: [ClientInfo]?, withClients: Bool) -> String {
        var page = Exposition()
        page.family("nightbell_up", .gauge, "Whether the supervisor answers.")
        page.sample("nightbell_up", status == nil ? 0 : 1)
        page.family("nightbell_gateway_event_streams", .gauge, "Connections that follow events.")
        page.sample("nightbell_gateway_event_streams", Double(hub.streams))
        page.histogram(
            "nightbell_wake_duration_seconds", "From a wake to the next suspension of the client.",
            durations.histogram)
        addRequests(to: &page)
        guard let status else { return page.text }
        add(status, to: &page)
        guard let clients else { return page.text }
        add(clients, to: &page)
        addAsleep(status, clients, named: withClients, to: &page)
        return page.text
    }

    private func add(_ status: SupervisorStatus, to page: inout Exposition) {
        page.family("nightbell_info", .gauge, "The supervisor's version, and how it suspends clients.")
        page.sample("nightbell_info", 1, [("version", status.version), ("suspension", status.suspension)])
        page.family("nightbell_uptime_seconds", .gauge, "Since the supervisor was started.")
        page.sample("nightbell_uptime_seconds", status.uptime / .seconds(1))
        page.family("nightbell_clients", .gauge, "Clients in each state.")
        for state in ClientInfo.State.allCases where state != .unknown {
            page.sample(
                "nightbell_clients", Double(status.clientsByState[state.name] ?? 0), [("state", state.name)])
        }
        page.family("nightbell_sockets", .gauge, "Parked sockets.")
        page.sample("nightbell_sockets", Double(status.sockets))
        page.family(
            "nightbell_wakes_total", .counter,
            "Wakes with each reason; a wake with several reasons counts for each of them.")
        for (name, count) in status.counters.named where name.hasPrefix("wakes_") {
            page.sample("nightbell_wakes_total", Double(count), [("reason", String(name.dropFirst(6)))])
        }
        addOffload(status.offloadByProfile.sorted { $0.key < $1.key }, to: &page)
        page.family("nightbell_suspensions_total", .counter, "Suspensions of clients.")
        page.sample("nightbell_suspensions_total", Double(status.counters["suspensions"]))
        page.family("nightbell_launches_total", .counter, "Programs that the supervisor has started.")
        page.sample("nightbell_launches_total", Double(status.counters["launches"]))
        page.family("nightbell_crashes_total", .counter, "Clients that ended badly.")
        page.sample("nightbell_crashes_total", Double(status.counters["crashes"]))
        page.family(
            "nightbell_ended_under_pressure_total", .counter,
            "Suspended clients that were ended because memory was short.")
        page.sample(
            "nightbell_ended_under_pressure_total", Double(status.counters["ended_under_pressure"]))
        page.family(
            "nightbell_recoveries_total", .counter, "How often the supervisor's worker has been replaced.")
        page.sample("nightbell_recoveries_total", Double(status.restarts))
        page.family("nightbell_descriptors_open", .gauge, "Open descriptors of the supervisor.")
        page.sample("nightbell_descriptors_open", Double(status.descriptorsOpen))
        page.family("nightbell_descriptors_limit", .gauge, "The most descriptors that it may open.")
        page.sample("nightbell_descriptors_limit", Double(status.descriptorsLimit))
        page.family("nightbell_memory_bytes", .gauge, "Resident memory of the supervisor's worker.")
        page.sample("nightbell_memory_bytes", Double(status.memoryBytes))
        page.family(
            "nightbell_memory_reclaimed_bytes_total", .counter,
            "Memory of sleeping clients that was written to swap, or that they had when they were ended because memory was short."
        )
        page.sample("nightbell_memory_reclaimed_bytes_total", Double(status.memoryReclaimedBytes))
    }

    private func addOffload(
        _ profiles: [(key: String, value: OffloadCounters)], to page: inout Exposition
    ) {
        page.family(
            "nightbell_wakes_avoided_total", .counter,
            "Wakes that clients were spared: one for each ping that was sent for them, and one for each time there was only noise to read."
        )
        for (profile, counters) in profiles {
            let ofNoise = max(0, counters.wakesAvoided - counters.sent)
            for (kind, count) in [("ping", counters.sent), ("noise", ofNoise)] {
                page.sample(
                    "nightbell_wakes_avoided_total", Double(count), [("profile", profile), ("kind", kind)])
            }
        }
        page.family("nightbell_pings_total", .counter, "Pings and noise handled for sleeping clients.")
        for (profile, counters) in profiles {
            for (kind, count) in [
                ("sent", counters.sent), ("confirmed", counters.confirmed), ("answered", counters.answered),
                ("absorbed", counters.absorbed),
            ] {
                page.sample("nightbell_pings_total", Double(count), [("profile", profile), ("kind", kind)])
            }
        }
    }

    private func add(_ clients: [ClientInfo], to page: inout Exposition) {
        page.family(
            "nightbell_awake_because", .gauge,
            "Clients that are awake, by each cause; a client with several causes counts for each of them.")
        var counts: [ClientInfo.AwakeCause: Int] = [:]
        for client in clients {
            for cause in client.awakeCauses { counts[cause, default: 0] += 1 }
        }
        for cause in ClientInfo.AwakeCause.allCases {
            page.sample("nightbell_awake_because", Double(counts[cause] ?? 0), [("cause", cause.rawValue)])
        }
    }

    private func addAsleep(
        _ status: SupervisorStatus, _ clients: [ClientInfo], named: Bool, to page: inout Exposition
    ) {
        page.family(
            "nightbell_client_asleep_seconds_total", .counter,
            "Time that clients were suspended, of all together, or of each if they are asked for.")
        guard named, clients.count <= Self.mostNamedClients else {
            page.sample(
                "nightbell_client_asleep_seconds_total", status.counters.asleep / .seconds(1))
            return
        }
        for client in clients {
            page.sample(
                "nightbell_client_asleep_seconds_total", client.counters.asleep / .seconds(1),
                [("client", client.identifier)])
        }
    }

    private func addRequests(to page: inout Exposition) {
        page.family(
            RequestMetrics.requests, .counter, "Requests to the gateway, without those that are no HTTP.")
        for (labels, count) in requests.counts(RequestMetrics.requests) {
            page.sample(RequestMetrics.requests, Double(count), labels)
        }
        guard let durations = requests.durations(RequestMetrics.duration) else { return }
        page.histogram(
            RequestMetrics.duration, "From a request to the gateway to the beginning of its answer.",
            durations)
    }
}

/// Text in the format 0.0.4.
struct Exposition {
    enum Kind: String {
        case counter, gauge, histogram
    }

    private(set) var text = ""

    mutating func family(_ name: String, _ kind: Kind, _ help: String) {
        text += "# HELP \(name) \(help)\n# TYPE \(name) \(kind.rawValue)\n"
    }

    mutating func sample(_ name: String, _ value: Double, _ labels: [(name: String, value: String)] = []) {
        text += name
        if !labels.isEmpty {
            let pairs = labels.map { "\($0.name)=\"\(Self.escaped($0.value))\"" }
            text += "{\(pairs.joined(separator: ","))}"
        }
        text += " \(Self.number(value))\n"
    }

    mutating func histogram(_ name: String, _ help: String, _ histogram: Histogram) {
        family(name, .histogram, help)
        var count: UInt64 = 0
        for (bound, ofBucket) in zip(histogram.bounds, histogram.counts) {
            count += ofBucket
            sample(name + "_bucket", Double(count), [("le", Self.number(bound))])
        }
        sample(name + "_bucket", Double(histogram.count), [("le", "+Inf")])
        sample(name + "_sum", histogram.sum)
        sample(name + "_count", Double(histogram.count))
    }

    /// Whole numbers without a fraction.
    static func number(_ value: Double) -> String {
        value.rounded() == value && abs(value) < 1e15 ? String(Int64(value)) : String(value)
    }

    static func escaped(_ text: String) -> String {
        text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing("\n", with: "\\n")
    }
}
