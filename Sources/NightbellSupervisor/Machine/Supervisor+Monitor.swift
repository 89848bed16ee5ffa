import LinuxSystem
import Logging
import NightbellCore
import NightbellWire
import SwiftProtobuf

/// Starting, asking and replacing the process that observes the machine.
extension Supervisor {
    /// Starts the monitor when a client needs it, asks it for what is needed now, and ends it when none does. With nothing
    /// to do this costs a comparison.
    func superviseMonitor() {
        let needs = supervision.isStopping ? [] : ask { $0.neededFacts }
        defer { monitor.needs = needs }
        guard let program = configuration.monitor else {
            return reportUnavailable(
                needs, "the machine is not observed (monitor: off, or no nightbell-monitor)")
        }
        if needs.isEmpty { return endIdleMonitor() }
        monitor.idleUntil = nil
        if monitor.process == nil, monitor.mayStart(at: now) { startMonitor(program) }
        guard let process = monitor.process else { return }
        if let limit = monitor.mustReadBy, now >= limit {
            monitor.mustReadBy = nil
            if process.hasUnread { return replaceMonitor("it does not read what it is asked") }
        }
        var demand = WireMonitorDemand()
        demand.sources = needs.sources
        demand.delaysSleep = ask { $0.delaysSleep }
        guard demand != monitor.demand else { return }
        forgetFacts(monitor.needs.subtracting(needs))
        monitor.demand = demand
        monitor.mustReadBy = now + MachineMonitor.readingTime
        if !process.send(demand) { replaceMonitor("it does not read what it is asked") }
    }

    private func endIdleMonitor() {
        guard let process = monitor.process else { return }
        guard let end = monitor.idleUntil else {
            monitor.idleUntil = now + MachineMonitor.idleTime
            monitor.mustReadBy = nil
            // The sleep of the machine is not delayed for no client.
            guard monitor.demand.delaysSleep else { return }
            monitor.demand.delaysSleep = false
            if !process.send(monitor.demand) { replaceMonitor("it does not read what it is asked") }
            return
        }
        guard now >= end else { return }
        logger.debug("the monitor of the machine ends: no client needs it")
        monitor.reset()
        monitor.ending.append(process)
        process.kill()
        forgetFacts(.all)
    }

    /// The supervisor ends.
    func endMonitor() {
        if let process = monitor.process { monitor.ending.append(process) }
        monitor.reset()
        for process in monitor.ending {
            process.kill()
            process.reap(within: 1_000)
        }
        monitor.ending.removeAll()
    }

    /// The end of a turn has changed what is asked of the monitor: clients have finished what they do before a sleep.
    var isDemandOutdated: Bool {
        guard monitor.process != nil, !monitor.needs.isEmpty, !supervision.isStopping else { return false }
        return ask { $0.delaysSleep } != monitor.demand.delaysSleep
    }

    private func startMonitor(_ program: MonitorProgram) {
        let number = monitor.nextNumber()
        do {
            let process = try MonitorProcess(program, number: number, at: now, loop)
            FaultInjection.point("after the monitor is started")
            monitor.process = process
            monitor.problem = ""
            logger.debug("the monitor of the machine is started", metadata: ["pid": "\(process.pid)"])
        } catch {
            monitorFailed("it cannot be started: \(error)", startedAt: nil)
        }
    }

    /// It misbehaves.
    private func replaceMonitor(_ reason: String) {
        guard let process = monitor.process else { return }
        monitor.ending.append(process)
        process.kill()
        monitorFailed(reason, startedAt: process.startedAt)
    }

    private func monitorFailed(_ reason: String, startedAt: Instant?) {
        monitor.noteFailure(startedAt: startedAt, at: now)
        monitor.problem = reason
        monitor.reset()
        log(.monitor, .warning, "the monitor of the machine is replaced: \(reason)")
        forgetFacts(.all)
        if monitor.failures >= MachineMonitor.failuresUntilUnavailable {
            reportUnavailable(monitor.needs, reason)
        }
    }

    /// A monitor has ended, by itself or not.
    func monitorExited(_ number: UInt64) {
        if let process = monitor.process, process.number == number {
            monitor.ending.append(process)
            monitorFailed(
                process.problem().map { "it cannot run: \($0)" } ?? "it has ended",
                startedAt: process.startedAt)
        }
        monitor.ending.removeAll { $0.number == number && $0.reap() }
    }

    // MARK: Facts

    /// Facts that are not reported any more are unknown, and nothing follows from that.
    private func forgetFacts(_ needs: FactNeeds) {
        let isNetworkKnown = supervision.machine.network != nil || supervision.machine.handledNetwork != nil
        if needs.contains(.network), isNetworkKnown { feed(.fact(.network(nil))) }
        if needs.contains(.power), supervision.machine.isOnBattery != nil {
            feed(.fact(.power(isOnBattery: nil)))
        }
        if needs.contains(.sleep), supervision.machine.isSleepImminent { feed(.fact(.resumed)) }
        if needs.contains(.users), supervision.machine.unlockedUsers.value != nil {
            feed(.fact(.unlocked(.unknown)))
        }
    }

    /// Clients that wait for a fact that nothing can tell need not wait.
    private func reportUnavailable(_ needs: FactNeeds, _ reason: String) {
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

    /// Reads what the monitor has reported; the rest of a flood waits for the next turn.
    func receiveReports(_ number: UInt64) {
        for _ in 0..<MachineMonitor.reportsPerTurn {
            guard let process = monitor.process, process.number == number else { return }
            do throws(SystemError) {
                switch try process.connection.receive(into: &packet) {
                case .wouldBlock:
                    return
                case .end:
                    return replaceMonitor(process.problem().map { "it cannot run: \($0)" } ?? "it has ended")
                case .packet(let length, let isTruncated, _):
                    guard !isTruncated, length <= MonitorProcess.longestPacket,
                        let report = try? WireMonitorReport(serializedBytes: packet.bytes)
                    else { return replaceMonitor("it sends what is no report") }
                    guard monitor.admitReport(at: now) else { return replaceMonitor("it sends too much") }
                    // It has read the demand: no timer is needed for that.
                    if monitor.mustReadBy != nil, !process.hasUnread { monitor.mustReadBy = nil }
                    learn(report)
                }
            } catch {
                return replaceMonitor("its connection failed: \(error)")
            }
        }
    }

    private func learn(_ report: WireMonitorReport) {
        switch report.fact {
        case .source(let state): learn(state)
        case .network(let network): learn(.network(NetworkFact(network)), from: .network)
        case .power(let power): learn(.power(isOnBattery: power.onBattery.truth), from: .power)
        case .sleep(let sleep):
            let isImminent = sleep.isImminent
            learn(isImminent ? .sleepImminent(isDelayed: sleep.isDelayed) : .resumed, from: .sleep)
        case .users(let users): learn(.unlocked(.known(Set(users.unlocked))), from: .users)
        case .audio, .location, .bluetooth, .value, .devices, nil:
            break  // nothing is asked of these sources
        }
    }

    /// A fact of a source that is not asked, or not any more, is not known.
    private func learn(_ fact: Fact, from source: WireMonitorSource) {
        guard monitor.demand.sources.contains(source) else { return }
        monitor.sources[source] = MachineMonitor.Source(isAvailable: true)
        feed(.fact(fact))
        FaultInjection.point("after a fact is learned")
        notifyWatchers(of: fact)
    }

    private func learn(_ state: WireMonitorReport.SourceState) {
        guard monitor.demand.sources.contains(state.source) else { return }
        let known = MachineMonitor.Source(isAvailable: state.isAvailable, reason: state.reason)
        guard monitor.sources[state.source] != known else { return }
        monitor.sources[state.source] = known
        guard !state.isAvailable else { return }
        log(.monitor, .notice, "the \(state.source.name) of the machine is not known: \(state.reason)")
        switch state.source {
        case .network: forgetFacts(.network)
        case .power: forgetFacts(.power)
        case .sleep: forgetFacts(.sleep)
        case .users: feed(.fact(.unlocked(.unavailable)))
        case .audio, .location, .bluetooth, .devices, .unspecified, .UNRECOGNIZED: break
        }
    }

    // MARK: Status

    var sourceReports: [WireSupervisorStatus.Source] {
        monitor.needs.sources.map { source in
            .with {
                $0.name = source.name
                let state = monitor.sources[source]
                $0.isAvailable = state?.isAvailable ?? false
                let missing = monitor.problem.isEmpty ? "it has not reported yet" : monitor.problem
                $0.reason = $0.isAvailable ? "" : state?.reason ?? missing
            }
        }
    }

    private func notifyWatchers(of fact: Fact) {
        guard connections.watchers > 0 else { return }
        var event = WireWatchEvent()
        event.atUnixNs = WallClock.now()
        event.kind = "machine"
        event.detail = fact.text
        for connection in connections.all {
            guard case .watcher(let wanted) = connection.role, wanted.isEmpty else { continue }
            send(event, to: connection)
        }
    }
}

extension FactNeeds {
    static let all: FactNeeds = [.network, .power, .sleep, .users]
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

extension Fact {
    /// For watchers.
    fileprivate var text: String {
        switch self {
        case .network(let network?):
            "network \(network.isUp ? "up" : "down")" + (network.isMetered == true ? ", metered" : "")
        case .network(nil): "network unknown"
        case .power(let isOnBattery): isOnBattery.map { $0 ? "on battery" : "on mains" } ?? "power unknown"
        case .sleepImminent(let isDelayed): "about to sleep" + (isDelayed ? ", delayed" : "")
        case .resumed: "awake"
        case .wallClock: "the local time has changed"
        case .shortage(let isShort): isShort ? "little memory or processor time" : "enough memory and time"
        case .unlocked(.known(let users)):
            "unlocked: " + users.sorted().map { "\($0)" }.joined(separator: ", ")
        case .unlocked(.unknown), .unlocked(.unavailable): "unlocked users unknown"
        }
    }
}
