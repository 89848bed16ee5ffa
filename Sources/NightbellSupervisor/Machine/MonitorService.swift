import EventLoop
import NightbellCore
import NightbellWire
import SwiftProtobuf

/// The processes that observe.
enum MonitorID: Hashable {
    /// The one for the whole machine.
    case machine
    /// The one for a user's session.
    case session(UserID)
}

/// The process that observes the machine, or a user's session: whether it runs, and what its sources have
/// said.
///
/// It runs only while some client needs it. It may die, hang or send nonsense: then it is replaced after a
/// pause, and nothing but its facts is missing.
struct MonitorService {
    /// A source, as it has described itself.
    struct Source: Equatable {
        var isAvailable: Bool
        var reason = ""
        /// It is expected to be available in some seconds.
        var isTemporary = false
    }

    var process: HelperProcess?
    /// The last demand sent.
    var demand = WireMonitorDemand()
    /// The part of that demand that is about the subjects of observations.
    var observed = ObservationDemand()
    var needs: FactNeeds = []
    /// Some client needs it.
    var isNeeded = false
    var sources: [WireMonitorSource: Source] = [:]
    /// Why it does not run although it is needed.
    var problem = ""
    /// It has been said that the machine is not observed.
    var isReportedMissing = false

    var history = HelperHistory()
    /// When it ends, because no client needs it.
    var idleUntil: Instant?
    /// When it must have read what was unread when a demand was sent.
    var mustReadBy: Instant?
    /// No demand is sent to it before.
    var nextDemand: Instant?
    /// When a demand is sent that came too soon after another.
    var demandHeldUntil: Instant?
    /// When it was heard of, or asked for something, last.
    var heardAt = Instant(nanoseconds: .min)
    /// When to look whether it still runs.
    var checkAt: Instant?
    /// Reports handled in a turn; the rest waits for the next one.
    static let reportsPerTurn = 32
    /// How long it is kept when no client needs it.
    static let idleTime: Duration = .seconds(10)
    /// How long it may take to read a demand.
    static let readingTime: Duration = .seconds(5)
    /// Between demands.
    static let demandPause: Duration = .milliseconds(100)
    /// After this many failures in a row the facts of one that cannot run count as unavailable.
    static let failuresUntilUnavailable = 3

    /// When something is due for it.
    var nextDeadline: Instant? {
        [
            process == nil && isNeeded ? history.restartAt : nil, idleUntil, mustReadBy, demandHeldUntil,
            checkAt,
        ]
        .compactMap(\.self).min()
    }

    /// For status reports.
    func report(of source: WireMonitorSource, named name: String) -> WireSupervisorStatus.Source {
        .with {
            $0.name = name
            let state = sources[source]
            $0.isAvailable = state?.isAvailable ?? false
            let missing = problem.isEmpty ? "it has not reported yet" : problem
            $0.reason = $0.isAvailable ? "" : state?.reason ?? missing
        }
    }

    /// Forgets everything about the last process.
    mutating func reset() {
        process = nil
        demand = WireMonitorDemand()
        observed = ObservationDemand()
        sources = [:]
        mustReadBy = nil
        checkAt = nil
        nextDemand = nil
        demandHeldUntil = nil
        idleUntil = nil
    }
}

extension FactNeeds {
    /// The sources of these facts, in the order of their numbers.
    var sources: [WireMonitorSource] {
        var sources: [WireMonitorSource] = []
        if contains(.network) { sources.append(.network) }
        if contains(.power) { sources.append(.power) }
        if contains(.sleep) { sources.append(.sleep) }
        if contains(.users) { sources.append(.users) }
        if contains(.location) { sources.append(.location) }
        if contains(.bluetooth) { sources.append(.bluetooth) }
        if contains(.devices) { sources.append(.devices) }
        return sources
    }
}

extension WireMonitorSource {
    /// For status reports.
    var name: String {
        switch self {
        case .network: "network"
        case .power: "power"
        case .sleep: "sleep"
        case .users: "users"
        case .audio: "audio"
        case .location: "location"
        case .bluetooth: "bluetooth"
        case .devices: "devices"
        case .notifications: "notifications"
        case .unspecified, .UNRECOGNIZED: "unknown"
        }
    }
}
