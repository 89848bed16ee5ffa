import Glibc
import LinuxSystem
import Logging
import NightbellCore
import NightbellWire
import SwiftProtobuf

/// The monitor of one user's session, and the media that it has reported.
struct SessionMonitor {
    var monitor = MonitorService()
    /// nil: nothing is known.
    var media: WireMonitorReport.Audio?
    /// The clients that each reported process belongs to; none, if it belongs to none. A process that has
    /// been found is not looked for again: its parent may have ended.
    var clients: [UInt32: [ClientID]] = [:]
    /// Reported processes that are still to be looked for.
    var unknown: [UInt32] = []
    /// It is in the backlog.
    var isLooking = false
    /// No better evidence than a client's word is to be had.
    var isUnavailable = false

    /// Processes that are looked for at a time: some 20 µs each.
    static let processesAtOnce = 8

    /// Takes a report. Processes that it does not name any more are forgotten.
    mutating func take(_ report: WireMonitorReport.Audio) {
        media = report
        let named = Set(report.streaming + report.playing)
        clients = clients.filter { named.contains($0.key) }
        unknown = named.subtracting(clients.keys).sorted()
    }

    /// Looks for the processes again that belonged to no client.
    mutating func lookAgain() {
        guard let media else { return }
        clients = clients.filter { !$0.value.isEmpty }
        take(media)
    }

    mutating func forget() {
        media = nil
        clients = [:]
        unknown = []
    }

    /// The clients with media, once all processes are found.
    var fact: MediaFact? {
        guard let media else { return nil }
        func found(_ processes: [UInt32]) -> [ClientID] {
            Set(processes.flatMap { clients[$0] ?? [] }).sorted { $0.rawValue < $1.rawValue }
        }
        return MediaFact(
            streaming: media.isPipewireThere ? found(media.streaming) : nil, playing: found(media.playing))
    }
}

/// Media and notifications in the sessions of users.
///
/// Each session has a monitor of its own, which runs as its user: no peer in it can reach, or delay, anything
/// of another user's.
extension Supervisor {
    func superviseSessions() {
        let users = supervision.isStopping ? [] : ask { $0.sessionUsers }
        guard !users.isEmpty || !sessions.isEmpty || !unobservedUsers.isEmpty else { return }
        notificationsDemanded = supervision.notifications.revision
        let wanting = users.filter { sessions[$0] == nil }
        unobservedUsers.formIntersection(wanting)
        for user in wanting {
            guard sessions.count < configuration.observedSessions else {
                leaveUnobserved(user)
                continue
            }
            unobservedUsers.remove(user)
            sessions[user] = SessionMonitor()
        }
        for user in sessions.keys.sorted() {
            let demand = supervision.isStopping ? nil : sessionDemand(of: user)
            let id = MonitorID.session(user)
            guard let program = configuration.monitor?.session(of: user) else {
                if demand != nil { mediaIsUnavailable(of: user) } else { sessions[user] = nil }
                continue
            }
            if demand?.sources.contains(.audio) == false { forgetMedia(of: user) }
            supervise(id, program, demand)
            if let demand, !demand.posts.isEmpty, self[id].demand == demand {
                FaultInjection.point("after a notification is posted")
            }
            if demand == nil, self[id].process == nil { sessions[user] = nil }
        }
    }

    /// Everything that is needed of the monitor of a user's session; nil: nothing.
    private func sessionDemand(of user: UserID) -> WireMonitorDemand? {
        var demand = WireMonitorDemand()
        if ask({ $0.needsMedia(of: user) }) { demand.sources.append(.audio) }
        if ask({ $0.needsNotifications(of: user) }) {
            demand.sources.append(.notifications)
            let wanted = ask { $0.notificationDemand(of: user) }
            demand.posts = wanted.posts.map { WireMonitorDemand.Post($0) }
            demand.closes = wanted.closes
            demand.withdrawals = wanted.withdrawals
            demand.badges = wanted.badges.map { badge in
                .with {
                    $0.client = badge.client.description
                    $0.count = badge.count
                }
            }
            demand.notificationServer = wanted.server ?? ""
        }
        demand.number = 1
        return demand.sources.isEmpty ? nil : demand
    }

    /// There are too many sessions: the word of the user's clients counts.
    private func leaveUnobserved(_ user: UserID) {
        guard unobservedUsers.insert(user).inserted else { return }
        log(.monitor, .warning, "the session of uid \(user) is not observed: \(tooManySessions)")
        report(.media(of: user, .unavailable), about: user)
    }

    private var tooManySessions: String {
        "too many sessions (\(configuration.observedSessions) are observed)"
    }

    // MARK: Reports

    func learn(_ report: WireMonitorReport, ofSessionOf user: UserID) {
        // It may have been sent before the monitor read that nothing is needed any more.
        guard let sources = sessions[user]?.monitor.demand.sources else { return }
        if sources.contains(.notifications), learnNotifications(report, of: user) { return }
        guard sources.contains(.audio) else { return }
        switch report.fact {
        case .source(let state) where state.source == .audio:
            sessions[user]?.monitor.sources[.audio] = MonitorService.Source(
                isAvailable: state.isAvailable, reason: state.reason)
            guard !state.isAvailable else { break }
            if state.isTemporary { forgetMedia(of: user) } else { mediaIsUnavailable(of: user) }
        case .audio(let audio):
            let isComplete = audio.isPipewireThere
            sessions[user]?.monitor.sources[.audio] = MonitorService.Source(
                isAvailable: isComplete,
                reason: isComplete ? "" : "PipeWire is not running: \(Self.weakerEvidence)")
            sessions[user]?.isUnavailable = false
            sessions[user]?.take(audio)
            findMedia(of: user)
        case .source, .network, .power, .sleep, .users, .location, .bluetooth, .value, .devices,
            .notificationServer, .notification, nil:
            break  // nothing is asked of these sources here
        }
    }

    private static let weakerEvidence = "players (MPRIS) and the clients' own word count"

    /// A client has come: it may be the one that plays.
    func findMediaAgain(of user: UserID) {
        guard sessions[user]?.media != nil else { return }
        sessions[user]?.lookAgain()
        findMedia(of: user)
    }

    /// Looks for the reported processes in the user's turn.
    private func findMedia(of user: UserID) {
        guard sessions[user]?.isLooking == false else { return }
        sessions[user]?.isLooking = true
        backlog.append(.media(user), of: user)
    }

    func continueFindingMedia(of user: UserID) {
        guard let session = sessions[user] else { return }
        sessions[user]?.isLooking = false
        for process in session.unknown.prefix(SessionMonitor.processesAtOnce) {
            sessions[user]?.clients[process] = clients(of: pid_t(clamping: process), of: user)
        }
        sessions[user]?.unknown.removeFirst(min(SessionMonitor.processesAtOnce, session.unknown.count))
        guard session.unknown.count <= SessionMonitor.processesAtOnce else { return findMedia(of: user) }
        if let fact = sessions[user]?.fact {
            report(.media(of: user, .known(fact)), about: user)
        }
    }

    /// The clients of a user that a process belongs to: it is their process, a descendant, or in their
    /// cgroup.
    private func clients(of process: pid_t, of user: UserID) -> [ClientID] {
        let found = ProcFS.firstOfAncestry(of: process) { ancestor in
            let clients = connections.clients(in: ancestor).filter { supervision.user(of: $0) == user }
            return clients.isEmpty ? nil : clients
        }
        if let found { return found }
        guard let slot = clientSlot(inCgroupOf: process), let client = connections.client(inSlot: slot),
            supervision.user(of: client) == user
        else { return [] }
        return [client]
    }

    /// A process without its parent is still in the cgroup that it was started in.
    private func clientSlot(inCgroupOf process: pid_t) -> UInt32? {
        guard let text = try? SmallFile.readText("/proc/\(process)/cgroup") else { return nil }
        let own = "nightbell-" + RuntimeDirectory.instanceName(of: configuration.runtimeDirectory)
        for line in text.split(separator: "\n") where line.hasPrefix("0::") {
            let names = line.split(separator: "/")
            guard let index = names.lastIndex(where: { $0 == own }), index + 1 < names.count,
                names[index + 1].hasPrefix("client-")
            else { continue }
            return UInt32(names[index + 1].dropFirst("client-".count))
        }
        return nil
    }

    private func report(_ fact: Fact, about user: UserID) {
        feed(.fact(fact))
        notifyWatchers(of: fact, about: user)
    }

    /// The monitor is being replaced, or is not needed any more.
    func forgetMedia(of user: UserID) {
        guard sessions[user]?.media != nil else { return }
        sessions[user]?.forget()
        report(.media(of: user, .unknown), about: user)
    }

    func mediaIsUnavailable(of user: UserID) {
        guard sessions[user]?.isUnavailable == false else { return }
        sessions[user]?.isUnavailable = true
        sessions[user]?.forget()
        report(.media(of: user, .unavailable), about: user)
    }

    // MARK: Status

    func mediaReport(of user: UserID) -> WireSupervisorStatus.Source {
        let name = "audio of uid \(user)"
        if configuration.monitor?.session(of: user) == nil {
            return .with {
                $0.name = name
                $0.reason = "the session is not observed: \(Self.weakerEvidence)"
            }
        }
        if unobservedUsers.contains(user) {
            return .with {
                $0.name = name
                $0.reason = "\(tooManySessions): the clients' own word counts"
            }
        }
        return self[.session(user)].report(of: .audio, named: name)
    }
}

extension MediaWitness {
    /// For people.
    var text: String {
        switch self {
        case .stream: "a stream of its in PipeWire"
        case .player: "it is a player that says it plays (MPRIS)"
        case .word: "its own word, without PipeWire"
        case .earlier: "as last known"
        }
    }
}
