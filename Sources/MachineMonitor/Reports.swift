import EventHandlers
import LinuxSystem
package import NightbellWire
import SwiftProtobuf

/// The subject of a report. A later report about the same subject replaces an earlier one.
package enum ReportSubject: Hashable, Sendable {
    case source(WireMonitorSource)
    /// The level that a source has besides its availability.
    case level(WireMonitorSource)
    case characteristic(path: String)
    /// An event of a notification, in their order.
    case notification(UInt64)
}

/// Reports on their way to the supervisor: each subject's latest, in the order in which the subjects changed.
/// However often a subject changes, at most ten reports about it are sent in a burst and ten a second after
/// that; the last one is always sent.
package final class Reports {
    private var pending: [ReportSubject: WireMonitorReport] = [:]
    private var order: [ReportSubject] = []
    /// The levels that the supervisor knows.
    private var sent: [ReportSubject: WireMonitorReport] = [:]
    private var pace: [ReportSubject: Pace] = [:]
    private var notifications: UInt64 = 0
    private let timer: LoopTimer
    private let send: (WireMonitorReport) -> Bool

    /// - Parameter send: false: the queue is full. ``flush()`` has to be called when it has room.
    init(_ loop: HandlerLoop, send: @escaping (WireMonitorReport) -> Bool) {
        self.send = send
        // To be woken is enough: every turn ends with a flush.
        timer = LoopTimer(loop) {}
    }

    // MARK: Reporting

    /// A source's level.
    func report(_ source: WireMonitorSource, _ fact: WireMonitorReport.OneOf_Fact) {
        put(.level(source), fact)
    }

    /// - Parameter reason: the reason why the source cannot observe; nil: it can. Then what it reported
    ///   before is not known any more.
    func setAvailability(_ source: WireMonitorSource, reason: String?) {
        if let reason { return setAbsent(source, Absence(reason: reason)) }
        put(
            .source(source),
            .source(
                .with {
                    $0.source = source; $0.isAvailable = true
                }))
    }

    /// The source cannot observe. The things that it reported before are not known any more.
    func setAbsent(_ source: WireMonitorSource, _ absence: Absence) {
        forget(.level(source))
        var state = WireMonitorReport.SourceState()
        state.source = source
        state.reason = String(absence.reason.prefix(200))
        state.isTemporary = absence.isTemporary
        put(.source(source), .source(state))
    }

    /// The source's level is sent again: the supervisor forgets what it does not demand for a moment.
    func renew(_ source: WireMonitorSource) {
        guard let level = sent.removeValue(forKey: .level(source)), pending[.level(source)] == nil else {
            return
        }
        pending[.level(source)] = level
        order.append(.level(source))
    }

    /// The source's state is sent again, so that the supervisor hears something.
    func repeatState(_ source: WireMonitorSource) {
        guard let state = sent.removeValue(forKey: .source(source)), pending[.source(source)] == nil else {
            return
        }
        pending[.source(source)] = state
        order.append(.source(source))
    }

    /// The source's level is not known any more.
    func forgetLevel(_ source: WireMonitorSource) { forget(.level(source)) }

    func report(characteristic path: String, _ value: [UInt8]) {
        var report = WireMonitorReport.CharacteristicValue()
        report.path = path
        report.value = value.asField
        put(.characteristic(path: path), .value(report))
    }

    /// An event of a notification, which is not merged with others.
    ///
    /// - Parameter isAnswer: it is about a notification that is demanded.
    func report(notification event: WireMonitorReport.NotificationEvent, isAnswer: Bool) {
        // A server that tells of so many tells of others than ours.
        let waiting = order.count { $0.isNotification }
        guard waiting < Self.mostNotifications || isAnswer else { return }
        notifications += 1
        put(.notification(notifications), .notification(event))
    }

    private static let mostNotifications = 512

    /// The source is closed: its first reports after it was opened again are sent.
    func close(_ source: WireMonitorSource) {
        forget(.level(source))
        forget(.source(source))
        if source == .bluetooth { keepCharacteristics([]) }
    }

    /// Forgets all characteristics but these.
    func keepCharacteristics(_ paths: Set<String>) {
        for subject in Set(pace.keys).union(pending.keys) {
            guard case .characteristic(let path) = subject, !paths.contains(path) else { continue }
            forget(subject)
            pace[subject] = nil
        }
    }

    private func put(_ subject: ReportSubject, _ fact: WireMonitorReport.OneOf_Fact) {
        var report = WireMonitorReport()
        report.fact = fact
        if pending.updateValue(report, forKey: subject) == nil { order.append(subject) }
    }

    /// Its pace stays: it is not to be reported more often because it is forgotten in between.
    private func forget(_ subject: ReportSubject) {
        if pending.removeValue(forKey: subject) != nil { order.removeAll { $0 == subject } }
        sent[subject] = nil
    }

    // MARK: Sending

    /// Sends all that may be sent now.
    package func flush() {
        timer.deadline = nil
        guard !order.isEmpty else { return }
        let now = BootClock.now()
        var remaining: [ReportSubject] = []
        var isFull = false
        for subject in order {
            guard let report = pending[subject] else { continue }
            if isKnown(report, subject) {
                pending[subject] = nil
                continue
            }
            if isFull {
                remaining.append(subject)
            } else if let instant = pace[subject.paced, default: subject.newPace(now)].instant(after: now) {
                timer.deadline = min(instant, timer.deadline ?? .max)
                remaining.append(subject)
            } else if send(report) {
                pace[subject.paced, default: subject.newPace(now)].spend()
                pending[subject] = nil
                if subject.isEvent { continue }
                sent[subject] = report
            } else {
                isFull = true
                remaining.append(subject)
            }
        }
        order = remaining
    }

    /// A characteristic's value is an event: equal ones count.
    private func isKnown(_ report: WireMonitorReport, _ subject: ReportSubject) -> Bool {
        if subject.isEvent { return false }
        return sent[subject] == report
    }
}

extension ReportSubject {
    /// Equal ones count.
    fileprivate var isEvent: Bool {
        switch self {
        case .source, .level: false
        case .characteristic, .notification: true
        }
    }

    fileprivate var isNotification: Bool { if case .notification = self { true } else { false } }

    /// The subject with which it shares its pace.
    fileprivate var paced: ReportSubject { isNotification ? .notification(0) : self }

    fileprivate func newPace(_ now: Int64) -> Pace {
        isNotification ? Pace(now, burst: 256, milliseconds: 10) : Pace(now)
    }
}

/// A bucket of tokens, one for each event that is allowed.
package struct Pace {
    private var tokens: Int64
    /// The instant at which the last token came.
    private var filled: Int64
    private let burst: Int64
    private let interval: Int64

    /// - Parameters:
    ///   - burst: the number of events that are allowed at once.
    ///   - milliseconds: the time after which another one is allowed.
    package init(_ now: Int64, burst: Int64 = 10, milliseconds: Int64 = 100) {
        tokens = burst
        filled = now
        self.burst = burst
        interval = milliseconds * 1_000_000
    }

    /// The instant at which another event is allowed; nil: now.
    package mutating func instant(after now: Int64) -> Int64? {
        let come = max(0, (now - filled) / interval)
        tokens = min(burst, tokens + come)
        filled = tokens == burst ? now : filled + come * interval
        return tokens > 0 ? nil : filled + interval
    }

    package mutating func spend() { tokens -= 1 }
}
