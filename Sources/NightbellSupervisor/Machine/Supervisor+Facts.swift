import LinuxSystem
import Logging
import NightbellCore
import NightbellWire
import SwiftProtobuf

/// The facts that the monitors report, on their way to the core and to watchers.
extension Supervisor {
    /// Facts that are not reported any more are unknown, and nothing follows from that.
    func forgetFacts(_ needs: FactNeeds) {
        if !needs.isDisjoint(with: [.network, .power]) { transferCare.judgesFrom = nil }
        let isNetworkKnown = supervision.machine.network != nil || supervision.machine.handledNetwork != nil
        if needs.contains(.network), isNetworkKnown { feed(.fact(.network(nil))) }
        let isPowerKnown = supervision.machine.isOnBattery != nil || supervision.machine.isBatteryLow != nil
        if needs.contains(.power), isPowerKnown {
            feed(.fact(.power(isOnBattery: nil)))
        }
        if needs.contains(.sleep), supervision.machine.isSleepImminent { feed(.fact(.resumed)) }
        if needs.contains(.users), supervision.machine.unlockedUsers.value != nil {
            feed(.fact(.unlocked(.unknown)))
        }
        if needs.contains(.location), ask({ !$0.observations.isEmpty }) { feed(.fact(.position(nil))) }
        if needs.contains(.bluetooth), ask({ !$0.observations.isEmpty }) { feed(.fact(.bluetooth([:]))) }
        if needs.contains(.devices), ask({ !$0.observations.isEmpty }) { feed(.fact(.accessories([:]))) }
    }

    /// Clients that wait for a fact that nothing can tell need not wait.
    func reportUnavailable(_ needs: FactNeeds, _ reason: String) {
        guard !needs.isEmpty else { return }
        if !monitor.isReportedMissing {
            monitor.isReportedMissing = true
            logger.notice("facts about the machine are unavailable: \(reason)")
        }
        monitor.problem = reason
        if needs.contains(.users), supervision.machine.unlockedUsers == .unknown {
            feed(.fact(.unlocked(.unavailable)))
        }
    }

    /// Reads what a monitor has reported; the rest of a flood waits for the next turn.
    func receiveReports(_ number: UInt64) {
        guard let id = monitorID(number) else { return }
        for _ in 0..<MonitorService.reportsPerTurn {
            guard let process = self[id].process, process.number == number else { return }
            do throws(SystemError) {
                switch try process.connection.receive(into: &packet) {
                case .wouldBlock:
                    return
                case .end:
                    return monitorEnded(id, process)
                case .packet(let length, let isTruncated, _):
                    guard !isTruncated, length <= MonitorPacket.maximumBytes,
                        let report = try? WireMonitorReport(serializedBytes: packet.bytes),
                        report.isWithinLimits
                    else { return replaceMonitor(id, "it sends what is no report") }
                    guard self[id].history.admitReport(at: now) else {
                        return replaceMonitor(id, "it sends too much")
                    }
                    self[id].heardAt = now
                    // It has read the demand: no timer is needed for that.
                    if self[id].mustReadBy != nil, !process.hasUnread { self[id].mustReadBy = nil }
                    switch id {
                    case .machine: learn(report)
                    case .session(let user): learn(report, ofSessionOf: user)
                    }
                }
            } catch {
                return replaceMonitor(id, "its connection failed: \(error)")
            }
        }
    }

    private func learn(_ report: WireMonitorReport) {
        switch report.fact {
        case .source(let state): learn(state)
        case .network(let network): learn(.network(NetworkFact(network)), from: .network)
        case .power(let power):
            learn(
                .power(isOnBattery: power.onBattery.truth, isLow: power.batteryLow.truth), from: .power)
        case .sleep(let sleep):
            let isImminent = sleep.isImminent
            learn(isImminent ? .sleepImminent(isDelayed: sleep.isDelayed) : .resumed, from: .sleep)
        case .users(let users): learn(.unlocked(.known(Set(users.unlocked))), from: .users)
        case .location(let location):
            if let position = Position(location) { learn(.position(position), from: .location) }
        case .bluetooth(let bluetooth): learn(.bluetooth(bluetooth), from: .bluetooth)
        case .value(let value):
            learn(.characteristic(value.path, Array(value.value)), from: .bluetooth)
        case .devices(let devices): learn(.accessories(devices), from: .devices)
        case .audio, .notificationServer, .notification, nil:
            break  // nothing is asked of these sources
        }
    }

    /// A fact of a source that is not asked, or not any more, is not known.
    private func learn(_ fact: Fact, from source: WireMonitorSource) {
        guard monitor.demand.sources.contains(source) else { return }
        monitor.sources[source] = MonitorService.Source(isAvailable: true)
        monitor.isReportedMissing = false
        feed(.fact(fact))
        FaultInjection.point("after a fact is learned")
        notifyWatchers(of: fact)
    }

    private func learn(_ state: WireMonitorReport.SourceState) {
        guard monitor.demand.sources.contains(state.source) else { return }
        let known = MonitorService.Source(
            isAvailable: state.isAvailable, reason: state.reason, isTemporary: state.isTemporary)
        guard monitor.sources[state.source] != known else { return }
        monitor.sources[state.source] = known
        guard !state.isAvailable else { return }
        log(.monitor, .notice, "the \(state.source.name) of the machine is not known: \(state.reason)")
        notifyWatchers(ofMachine: "\(state.source.name) not known any more: \(state.reason)") { _ in true }
        switch state.source {
        case .network: forgetFacts(.network)
        case .power: forgetFacts(.power)
        case .sleep: forgetFacts(.sleep)
        case .users:
            if state.isTemporary { forgetFacts(.users) } else { feed(.fact(.unlocked(.unavailable))) }
        case .location: forgetFacts(.location)
        case .bluetooth: forgetFacts(.bluetooth)
        case .devices: forgetFacts(.devices)
        case .audio, .notifications, .unspecified, .UNRECOGNIZED: break
        }
    }

    // MARK: Status

    /// The sources that a connection's user may know of.
    func sourceReports(for connection: Connection) -> [WireSupervisorStatus.Source] {
        let users = Set(sessions.keys).union(unobservedUsers).filter {
            $0 == connection.credentials.uid || isAdministrator(connection)
        }
        return monitor.needs.sources.map { monitor.report(of: $0, named: $0.name) }
            + users.sorted().flatMap { sessionReports(of: $0) }
    }

    /// - Parameter user: the user that the fact is about; nil: all.
    func notifyWatchers(of fact: Fact, about user: UserID? = nil) {
        notifyWatchers(ofMachine: fact.text) { connection in
            !fact.isObserved && (user == nil || user == connection.credentials.uid)
        }
    }

    /// - Parameter isVisible: whether a watcher that is no administrator gets it.
    func notifyWatchers(ofMachine text: @autoclosure () -> String, isVisible: (Connection) -> Bool) {
        guard !connections.watchers.isEmpty else { return }
        var event = WireWatchEvent()
        event.atUnixNs = WallClock.now()
        event.kind = "machine"
        event.detail = text()
        for connection in connections.watchers {
            guard case .watcher(let wanted) = connection.role, wanted.isEmpty,
                isAdministrator(connection) || isVisible(connection)
            else { continue }
            send(event, to: connection)
        }
    }
}

extension WireMonitorAnswer {
    /// nil: unknown.
    var truth: Bool? {
        switch self {
        case .yes: true
        case .no: false
        case .unspecified, .UNRECOGNIZED: nil
        }
    }
}

extension NetworkFact {
    /// The fingerprint is the same in all programs and at all times: another worker compares it. (FNV-1a.)
    init(_ network: WireMonitorReport.Network) {
        var hash: UInt64 = 0xcbf2_9ce4_8422_2325
        func mix(_ bytes: some Sequence<UInt8>) {
            for byte in bytes { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
        }
        for address in network.addresses {
            mix(CollectionOfOne(UInt8(truncatingIfNeeded: address.count)))
            mix(address)
        }
        mix(network.defaultRoutes.utf8)
        self.init(
            fingerprint: hash, generation: network.generation, isUp: network.isUp,
            isMetered: network.metered.truth)
    }
}
