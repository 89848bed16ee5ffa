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
    func supervise(_ id: MonitorID, _ program: HelperProgram, _ demand: WireMonitorDemand?) {
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
            self[id].mustReadBy = now + MonitorService.readingTime
        }
        self[id].nextDemand = now + MonitorService.demandPause
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
        self[id].mustReadBy = now + MonitorService.readingTime
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

    subscript(id: MonitorID) -> MonitorService {
        get {
            switch id {
            case .machine: monitor
            case .session(let user): sessions[user]?.monitor ?? MonitorService()
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
            self[id].idleUntil = now + MonitorService.idleTime
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

    private func startMonitor(_ id: MonitorID, _ program: HelperProgram) {
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
    func replaceMonitor(_ id: MonitorID, _ reason: String) {
        guard let process = self[id].process else { return }
        endingMonitors.append(process)
        process.kill()
        monitorFailed(id, reason, startedAt: process.startedAt)
    }

    /// It has ended by itself, or its program could not be executed.
    func monitorEnded(_ id: MonitorID, _ process: HelperProcess) {
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
        guard self[id].history.failures >= MonitorService.failuresUntilUnavailable else { return }
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

    func monitorID(_ number: UInt64) -> MonitorID? {
        if monitor.process?.number == number { return .machine }
        return sessions.first { $0.value.monitor.process?.number == number }.map { .session($0.key) }
    }

    private func forgetFacts(of id: MonitorID) {
        switch id {
        case .machine: forgetFacts(.all)
        case .session(let user): forgetMedia(of: user)
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
