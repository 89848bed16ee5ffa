import LinuxSystem
import Logging
import NightbellCore
import NightbellWire
import SwiftProtobuf

/// Notifications in the sessions of users, by the monitors of these.
extension Supervisor {
    /// - Returns: whether the report is about notifications.
    func learnNotifications(_ report: WireMonitorReport, of user: UserID) -> Bool {
        switch report.fact {
        case .source(let state) where state.source == .notifications:
            sessions[user]?.monitor.sources[.notifications] = MonitorService.Source(
                isAvailable: state.isAvailable, reason: state.reason)
            if !state.isAvailable { reportNotifications(.server(nil), of: user) }
            return true
        case .notificationServer(let server):
            sessions[user]?.monitor.sources[.notifications] = MonitorService.Source(isAvailable: true)
            let longest = NotificationFact.longestServer
            let fact = NotificationFact.server(
                String(server.name.prefix(longest)), listener: String(server.connection.prefix(longest)))
            reportNotifications(fact, of: user)
            return true
        case .notification(let event):
            if case .refused(let refused)? = event.event {
                log(
                    .monitor, .warning, of: user,
                    "the notification server of uid \(user) does not show a notification: \(refused.reason)")
            }
            if let fact = NotificationFact(event) { reportNotifications(fact, of: user) }
            return true
        case .source, .network, .power, .sleep, .users, .audio, .location, .bluetooth, .value, .devices, nil:
            return false
        }
    }

    private func reportNotifications(_ fact: NotificationFact, of user: UserID) {
        if case .shown = fact { FaultInjection.point("before a notification counts as shown") }
        feed(.fact(.notifications(of: user, fact)))
        if case .shown = fact { FaultInjection.point("after a notification counts as shown") }
        notifyWatchers(of: .notifications(of: user, fact), about: user)
    }

    // MARK: Status

    /// The sources of a user's session that are needed.
    func sessionReports(of user: UserID) -> [WireSupervisorStatus.Source] {
        var reports: [WireSupervisorStatus.Source] = []
        let needsNotifications = ask { $0.needsNotifications(of: user) }
        // Media is told of for as long as the session is observed for it.
        if ask({ $0.needsMedia(of: user) }) || !needsNotifications { reports.append(mediaReport(of: user)) }
        if needsNotifications { reports.append(notificationReport(of: user)) }
        return reports
    }

    private func notificationReport(of user: UserID) -> WireSupervisorStatus.Source {
        let name = "notifications of uid \(user)"
        if configuration.monitor?.session(of: user) == nil {
            return .with {
                $0.name = name
                $0.reason = "the session is not observed: notifications wait"
            }
        }
        if unobservedUsers.contains(user) {
            return .with {
                $0.name = name
                $0.reason = "too many sessions (\(configuration.observedSessions) are observed): they wait"
            }
        }
        return self[.session(user)].report(of: .notifications, named: name)
    }
}
