import LinuxSystem
import Logging
import NightbellCore
import NightbellWire
import SwiftProtobuf

/// Starting, asking and replacing the processes that observe the machine and sessions.
extension Supervisor {
    /// Starts the monitors when a client needs them, asks them for what is needed now, and ends them when
    /// none does. With nothing to do this costs two comparisons.
    func superviseMonitor() {
        supervision.updateDemand()
        superviseSessions()
        let needs = supervision.isStopping ? [] : ask { $0.neededFacts }
        defer { monitor.needs = needs }
        guard let program = configuration.monitor else {
            return reportUnavailable(
                needs, "the machine is not observed (monitor: off, or no nightbell-monitor)")
        }
        guard !needs.isEmpty || monitor.process != nil else { return monitor.isNeeded = false }
        let observed = ask { $0.observationDemand }
        var demand = WireMonitorDemand(observed)
        demand.sources = needs.sources
        demand.delaysSleep = ask { $0.delaysSleep }
        demand.number = observed.revision + 1
        if !needs.isEmpty { forgetFacts(monitor.needs.subtracting(needs)) }
        supervise(.machine, program, needs.isEmpty ? nil : demand)
        if monitor.demand == demand { monitor.observed = observed }
    }

    /// - Parameter demand: everything that is needed of it; nil: nothing.
    func supervise(_ id: MonitorID, _ program: MonitorProgram, _ demand: WireMonitorDemand?) {
        self[id].isNeeded = demand != nil
        self[id].checkAt = nil
        guard let demand else { return endIdleMonitor(id) }
        self[id].idleUntil = nil
        if self[id].process == nil, self[id].history.mayStart(at: now) { startMonitor(id, program) }
        guard let process = self[id].process else { return }
        if let limit = self[id].mustReadBy, now >= limit {
            self[id].mustReadBy = nil
            if process.hasUnread { return replaceMonitor(id, "it does not read what it is asked") }
        }
        self[id].demandHeldUntil = nil
        guard demand != self[id].demand else { return checkMonitor(id, process) }
        // However often clients change their minds: what it has not read yet stays short.
        if let earliest = self[id].nextDemand, now < earliest { return self[id].demandHeldUntil = earliest }
        if self[id].mustReadBy == nil || !process.hasUnread {
            self[id].mustReadBy = now + MachineMonitor.readingTime
        }
        self[id].nextDemand = now + MachineMonitor.demandPause
        self[id].heardAt = now
        if process.send(demand) {
            self[id].demand = demand
        } else {
            self[id].demandHeldUntil = self[id].nextDemand
        }
    }

    /// Has a monitor that has been silent for long say something: it may hang. That is done in turns that
    /// have another reason; only facts that something is held up by have their own, because nothing else may
    /// happen until they change.
    private func checkMonitor(_ id: MonitorID, _ process: HelperProcess) {
        guard self[id].mustReadBy == nil else { return }
        let due = self[id].heardAt + configuration.monitorSilence
        guard now >= due else {
            if holdsSomethingUp(id) { self[id].checkAt = due }
            return
        }
        self[id].heardAt = now
        self[id].mustReadBy = now + MachineMonitor.readingTime
        // Without room it has not read, either.
        _ = process.send(self[id].demand)
    }

    /// Whether a client is kept awake, or the machine, or work is put off, because of what the monitor has
    /// said last.
    private func holdsSomethingUp(_ id: MonitorID) -> Bool {
        switch id {
        case .machine: supervision.machine.isSleepImminent || supervision.machine.network?.isUp == false
        case .session(let user): sessions[user]?.clients.values.contains { !$0.isEmpty } ?? false
        }
    }

    subscript(id: MonitorID) -> MachineMonitor {
        get {
            switch id {
            case .machine: monitor
            case .session(let user): sessions[user]?.monitor ?? MachineMonitor()
            }
        }
        set {
            switch id {
            case .machine: monitor = newValue
            case .session(let user): sessions[user]?.monitor = newValue
            }
        }
    }

    private func endIdleMonitor(_ id: MonitorID) {
        guard let process = self[id].process else { return }
        guard let end = self[id].idleUntil else {
            self[id].idleUntil = now + MachineMonitor.idleTime
            self[id].mustReadBy = nil
            // For no client the machine's sleep is delayed, or its location asked for; and a client that
            // observes again is told what changes after that.
            guard !self[id].demand.sources.isEmpty else { return }
            self[id].demand = .with { $0.number = self[id].demand.number }
            self[id].observed = ObservationDemand()
            forgetFacts(of: id)
            if !process.send(self[id].demand) { replaceMonitor(id, "it does not read what it is asked") }
            return
        }
        guard now >= end else { return }
        logger.debug("\(id) ends: no client needs it")
        self[id].reset()
        endingMonitors.append(process)
        process.kill()
        forgetFacts(of: id)
    }

    /// The supervisor ends.
    func endMonitor() {
        for id in [.machine] + sessions.keys.map(MonitorID.session) {
            if let process = self[id].process { endingMonitors.append(process) }
            self[id].reset()
        }
        for process in endingMonitors {
            process.kill()
            process.reap(within: 1_000)
        }
        endingMonitors.removeAll()
    }

    /// The end of a turn has changed what is asked of the monitor: clients have finished what they do before
    /// a sleep.
    var isDemandOutdated: Bool {
        if notificationsDemanded != supervision.notifications.revision, !supervision.isStopping {
            return true
        }
        guard monitor.process != nil, !monitor.needs.isEmpty, monitor.demandHeldUntil == nil,
            !supervision.isStopping
        else { return false }
        return ask { $0.delaysSleep } != monitor.demand.delaysSleep
            || ask { $0.observationDemand } != monitor.observed
    }

    private func startMonitor(_ id: MonitorID, _ program: MonitorProgram) {
        monitorsStarted += 1
        do {
            let process = try HelperProcess(
                program, number: monitorsStarted,
                tokens: (
                    WatchToken(.monitor, id: monitorsStarted), WatchToken(.monitorExit, id: monitorsStarted)
                ), at: now, loop)
            FaultInjection.point("after the monitor is started")
            self[id].process = process
            self[id].problem = ""
            logger.debug("\(id) is started", metadata: ["pid": "\(process.pid)"])
        } catch {
            monitorFailed(id, "it cannot be started: \(error)", startedAt: nil, canRun: false)
        }
    }

    /// It misbehaves.
    private func replaceMonitor(_ id: MonitorID, _ reason: String) {
        guard let process = self[id].process else { return }
        endingMonitors.append(process)
        process.kill()
        monitorFailed(id, reason, startedAt: process.startedAt)
    }

    /// It has ended by itself, or its program could not be executed.
    private func monitorEnded(_ id: MonitorID, _ process: HelperProcess) {
        endingMonitors.append(process)
        process.kill()
        let problem = process.problem()
        monitorFailed(
            id, problem.map { "it cannot run: \($0)" } ?? "it has ended", startedAt: process.startedAt,
            canRun: problem == nil)
    }

    /// - Parameter canRun: false: its program could not be executed.
    private func monitorFailed(
        _ id: MonitorID, _ reason: String, startedAt: Instant?, canRun: Bool = true
    ) {
        self[id].history.noteFailure(startedAt: startedAt, at: now)
        self[id].problem = reason
        self[id].reset()
        log(.monitor, .warning, "\(id) is replaced: \(reason)")
        notifyWatchers(ofMachine: "nothing is known from \(id): \(reason)") { connection in
            id == .machine || id == .session(connection.credentials.uid)
        }
        forgetFacts(of: id)
        guard self[id].history.failures >= MachineMonitor.failuresUntilUnavailable else { return }
        switch id {
        case .machine:
            // Facts of one that runs and ends are unknown: others may make it end, and another one may live.
            if !canRun { reportUnavailable(monitor.needs, reason) }
        case .session(let user): mediaIsUnavailable(of: user)
        }
    }

    /// A monitor has ended, by itself or not.
    func monitorExited(_ number: UInt64) {
        if let id = monitorID(number), let process = self[id].process { monitorEnded(id, process) }
        endingMonitors.removeAll { $0.number == number && $0.reap() }
    }

    private func monitorID(_ number: UInt64) -> MonitorID? {
        if monitor.process?.number == number { return .machine }
        return sessions.first { $0.value.monitor.process?.number == number }.map { .session($0.key) }
    }

    private func forgetFacts(of id: MonitorID) {
        switch id {
        case .machine: forgetFacts(.all)
        case .session(let user): forgetMedia(of: user)
        }
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
        if needs.contains(.location), ask({ !$0.observations.isEmpty }) { feed(.fact(.position(nil))) }
        if needs.contains(.bluetooth), ask({ !$0.observations.isEmpty }) { feed(.fact(.bluetooth([:]))) }
        if needs.contains(.devices), ask({ !$0.observations.isEmpty }) { feed(.fact(.accessories([:]))) }
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

    /// Reads what a monitor has reported; the rest of a flood waits for the next turn.
    func receiveReports(_ number: UInt64) {
        guard let id = monitorID(number) else { return }
        for _ in 0..<MachineMonitor.reportsPerTurn {
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
        case .power(let power): learn(.power(isOnBattery: power.onBattery.truth), from: .power)
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
        monitor.sources[source] = MachineMonitor.Source(isAvailable: true)
        monitor.isReportedMissing = false
        feed(.fact(fact))
        FaultInjection.point("after a fact is learned")
        notifyWatchers(of: fact)
    }

    private func learn(_ state: WireMonitorReport.SourceState) {
        guard monitor.demand.sources.contains(state.source) else { return }
        let known = MachineMonitor.Source(
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
    private func notifyWatchers(ofMachine text: @autoclosure () -> String, isVisible: (Connection) -> Bool) {
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

extension FactNeeds {
    static let all: FactNeeds = [
        .network, .power, .sleep, .users, .location, .bluetooth, .devices,
    ]
}

extension MonitorID: CustomStringConvertible {
    var description: String {
        switch self {
        case .machine: "the monitor of the machine"
        case .session(let user): "the monitor of uid \(user)'s session"
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

extension Fact {
    /// Whether it is about the subject of an observation, which is only for its clients to know.
    fileprivate var isObserved: Bool {
        switch self {
        case .position, .bluetooth, .characteristic, .accessories, .transfers, .pushes, .pushServiceChanged,
            .notifications:
            true
        case .network, .power, .sleepImminent, .resumed, .wallClock, .clock, .shortage, .unlocked, .media,
            .discretionaryTransfers:
            false
        }
    }

    /// For watchers.
    fileprivate var text: String {
        switch self {
        case .network(let network?):
            "network \(network.isUp ? "up" : "down")" + (network.isMetered == true ? ", metered" : "")
        case .network(nil): "network unknown"
        case .power(let isOnBattery): isOnBattery.map { $0 ? "on battery" : "on mains" } ?? "power unknown"
        case .sleepImminent(let isDelayed): "about to sleep" + (isDelayed ? ", delayed" : "")
        case .resumed: "awake"
        case .wallClock, .clock: "the local time has changed"
        case .shortage(let isShort): isShort ? "little memory or processor time" : "enough memory and time"
        case .unlocked(.known(let users)):
            "unlocked: " + users.sorted().map { "\($0)" }.joined(separator: ", ")
        case .unlocked(.unknown), .unlocked(.unavailable): "unlocked users unknown"
        case .position(let position):
            position.map { "at \($0.latitude), \($0.longitude)" } ?? "position unknown"
        case .bluetooth(let devices): "Bluetooth: " + Self.text(of: devices)
        case .characteristic(let path, let value): "\(path) has notified \(value.count) bytes"
        case .accessories(let accessories): "accessories: " + Self.text(of: accessories)
        case .pushServiceChanged: "the push service has gone or come"
        case .pushes(let waiting):
            "pushes for \(waiting.client): " + (waiting.urgency.map { "\($0)" } ?? "none")
        case .discretionaryTransfers(let user, let waits):
            "transfers of uid \(user) " + (waits ? "wait" : "wait no longer") + " for a good moment"
        case .transfers(let ended): "the transfers \(ended.session) of \(ended.client) are finished"
        case .media(let user, .known(let media)):
            media.streaming.map { "\($0.count) clients of uid \(user) stream" }
                ?? "\(media.playing.count) clients of uid \(user) say that they play (MPRIS)"
        case .media(let user, .unknown), .media(let user, .unavailable): "media of uid \(user) unknown"
        case .notifications(let user, let fact):
            switch fact {
            case .server(let server, _):
                "notification server of uid \(user) " + (server == nil ? "missing" : "found")
            case .shown(let number, _, _): "notification \(number) of uid \(user) shown"
            case .refused(let number, _): "notification \(number) of uid \(user) refused"
            case .closed(let id): "notification \(id) of uid \(user) closed"
            case .withdrawn(let number): "notification \(number) of uid \(user) withdrawn"
            case .activated(let id, _, _): "notification \(id) of uid \(user) activated"
            }
        }
    }

    private static func text(of devices: [String: Presence]) -> String {
        guard !devices.isEmpty else { return "unknown" }
        return devices.sorted { $0.key < $1.key }.map { name, presence in
            name + (presence == .absent ? " absent" : " present")
        }.joined(separator: ", ")
    }
}
