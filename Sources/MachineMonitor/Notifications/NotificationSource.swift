import NightbellWire
import SwiftProtobuf

/// The notification server of the session (org.freedesktop.Notifications): shows what is demanded, and reports
/// what has become of it.
///
/// A notification is given to a server once, as long as it is demanded, and anew when the server has answered;
/// another server is given all that are demanded. A server that does not answer holds up nothing else, and
/// shows what it was given when it goes on.
final class NotificationSource: Source {
    private let context: SourceContext
    private let connection: BusConnection
    private let badges: LauncherBadges
    private var service: BusService?
    private var subscriptions: [BusSubscription] = []
    private var demand = WireMonitorDemand()
    /// Those of the demand that this server was given.
    private var given: Set<Key> = []
    /// The numbers of those that the server has not answered yet.
    private var underWay: Set<UInt64> = []
    private var closed: Set<UInt32> = []
    private var withdrawn: Set<UInt64> = []
    /// nil: the server has not said yet what it can do.
    private var capabilities: Capabilities?
    /// The last tokens that the server has given for windows, by notification.
    private var tokens: [UInt32: String] = [:]

    private static let name = "org.freedesktop.Notifications"
    private static let path = "/org/freedesktop/Notifications"
    private static let longestText = 256
    private static let mostTokens = 16
    /// A server that does not answer is given no more.
    private static let mostUnderWay = 16

    /// nil: there is no server, or it has not said yet what it can do.
    private var shown: ShownNotifications?

    private typealias Key = ShownNotifications.Key

    struct Capabilities {
        /// The body is markup: characters with a meaning there are escaped.
        var hasMarkup = false
        var hasActions = false
    }

    init(_ context: SourceContext) {
        self.context = context
        connection = context.buses.session()
        badges = LauncherBadges(connection)
        let service = BusService(connection, name: Self.name, isStarted: true) {
            [unowned self] presence in handle(presence)
        }
        self.service = service
        subscriptions = [
            service.subscribe(.init(path: Self.path, interface: Self.name, member: "ActivationToken")) {
                [unowned self] (message) throws(BusError) in
                let id = try message.number()
                let token = try message.text()
                guard token.utf8.count <= Self.longestText else { return }
                if tokens.count >= Self.mostTokens { tokens.removeAll() }
                tokens[id] = token
            },
            service.subscribe(.init(path: Self.path, interface: Self.name, member: "ActionInvoked")) {
                [unowned self] (message) throws(BusError) in
                let id = try message.number()
                let action = try message.text()
                guard action.utf8.count <= Self.longestText else { return }
                let token = tokens.removeValue(forKey: id) ?? ""
                shown?.noteEnd(of: id, .activated(action: action))
                report(id) {
                    $0.activated = .with {
                        $0.action = action
                        $0.token = token
                    }
                }
            },
            service.subscribe(.init(path: Self.path, interface: Self.name, member: "NotificationClosed")) {
                [unowned self] (message) throws(BusError) in
                let id = try message.number()
                shown?.noteEnd(of: id, .closed)
                report(id) { $0.closed = .init() }
            },
        ]
        service.begin()
        badges.begin()
    }

    func update(_ demand: WireMonitorDemand) {
        self.demand = demand
        badges.update(demand.badges)
        given.formIntersection(demand.posts.map(\.key))
        closed.formIntersection(demand.closes)
        withdrawn.formIntersection(demand.withdrawals)
        work()
    }

    private func handle(_ presence: BusService.Presence) {
        switch presence {
        case .present:
            forgetServer()
            askForCapabilities()
        case .doubtful: break
        case .absent(let absence):
            forgetServer()
            context.reports.setAbsent(.notifications, absence)
        }
    }

    private func forgetServer() {
        given = []
        underWay = []
        closed = []
        withdrawn = []
        tokens = [:]
        capabilities = nil
        shown = nil
    }

    private func askForCapabilities() {
        service?.call(Self.path, Self.name, "GetCapabilities") { [unowned self] reply in
            var capabilities = Capabilities()
            if case .success(let message) = reply {
                try? message.array(of: "s") { () throws(BusError) in
                    switch try message.text() {
                    case "body-markup": capabilities.hasMarkup = true
                    case "actions": capabilities.hasActions = true
                    default: break
                    }
                }
            }
            self.capabilities = capabilities
            shown = ShownNotifications(directory: context.configuration.runtimeDirectory, server: server)
            context.reports.setAvailability(.notifications, reason: nil)
            context.reports.report(
                .notifications,
                .notificationServer(
                    .with {
                        $0.name = server
                        $0.connection = connection.uniqueName
                    }))
            work()
        }
    }

    /// The name of the server, which no other one has, on this bus or on a later one.
    private var server: String { connection.identity + (service?.owner ?? "") }

    // MARK: Showing and closing

    private func work() {
        guard let capabilities else { return }
        // The numbers of another server are of no use: the supervisor demands them anew once it knows this one.
        let isKnown = demand.notificationServer == server
        for post in demand.posts where !given.contains(post.key) && (isKnown || post.replaces == 0) {
            // The number of the one before it is needed to replace that.
            guard underWay.count < Self.mostUnderWay, !underWay.contains(post.number) else { continue }
            given.insert(post.key)
            give(post, capabilities)
        }
        for id in demand.closes where isKnown && closed.insert(id).inserted {
            close(id) { [unowned self] in report(id, isAnswer: true) { $0.closed = .init() } }
        }
        for number in demand.withdrawals
        where !underWay.contains(number) && withdrawn.insert(number).inserted { withdraw(number) }
    }

    private func give(_ post: WireMonitorDemand.Post, _ capabilities: Capabilities) {
        var post = post
        if post.replaces != 0, let end = shown?.end(of: post.replaces) {
            report(post.replaces, end)
            if post.isRenewal { return }
            post.replaces = 0
        }
        if let id = shown?.id(of: post.key) {
            // It was shown already, for a supervisor that has not recorded that.
            if let end = shown?.end(of: id) {
                reportShown(post, id)
                return report(id, end)
            }
            post.replaces = id
            post.isRenewal = true
        } else if post.replaces == 0 {
            post.replaces = shown?.latest(of: post.number) ?? 0
        }
        show(post, capabilities)
    }

    private func show(_ post: WireMonitorDemand.Post, _ capabilities: Capabilities) {
        underWay.insert(post.number)
        service?.call(
            Self.path, Self.name, "Notify", isPatient: true,
            { (writer) throws(BusError) in try writer.notification(post, capabilities) },
            reply: { [unowned self] reply in
                underWay.remove(post.number)
                do throws(BusError) {
                    let id = try reply.get().number()
                    guard id != 0 else { throw BusError.unexpected }
                    shown?.note(post.key, id)
                    reportShown(post, id)
                } catch {
                    let reason = String("\(error)".prefix(Self.longestText))
                    report(0, isAnswer: true) {
                        $0.refused = .with {
                            $0.number = post.number
                            $0.revision = post.revision
                            $0.reason = reason
                        }
                    }
                }
                work()
            })
    }

    private func close(_ id: UInt32, _ isClosed: @escaping () -> Void) {
        service?.call(
            Self.path, Self.name, "CloseNotification",
            { (writer) throws(BusError) in try writer.number(id) },
            // One that it does not know is closed as well.
            reply: { _ in isClosed() })
    }

    private func withdraw(_ number: UInt64) {
        let isClosed = { [unowned self] in
            report(0, isAnswer: true) { $0.closed = .with { $0.withdrawn = number } }
        }
        if let id = shown?.latest(of: number) { close(id, isClosed) } else { isClosed() }
    }

    // MARK: Reports

    private func reportShown(_ post: WireMonitorDemand.Post, _ id: UInt32) {
        report(id, isAnswer: true) {
            $0.shown = .with {
                $0.number = post.number
                $0.revision = post.revision
                $0.server = server
            }
        }
    }

    /// The supervisor has perhaps not heard of it.
    private func report(_ id: UInt32, _ end: ShownNotifications.End) {
        report(id, isAnswer: true) {
            switch end {
            case .closed: $0.closed = .init()
            case .activated(let action): $0.activated = .with { $0.action = action }
            }
        }
    }

    private func report(
        _ id: UInt32, isAnswer: Bool = false, _ change: (inout WireMonitorReport.NotificationEvent) -> Void
    ) {
        var event = WireMonitorReport.NotificationEvent()
        event.id = id
        change(&event)
        context.reports.report(notification: event, isAnswer: isAnswer)
    }
}

extension WireMonitorDemand.Post {
    fileprivate var key: ShownNotifications.Key { .init(number: number, revision: revision) }
}

extension BusWriter {
    /// The arguments of Notify.
    fileprivate func notification(
        _ post: WireMonitorDemand.Post, _ capabilities: NotificationSource.Capabilities
    ) throws(BusError) {
        try text(post.client)
        try number(post.replaces)
        try text("")
        try text(post.title)
        try text(capabilities.hasMarkup ? Self.escaped(post.body) : post.body)
        try array(of: "s") { () throws(BusError) in
            guard capabilities.hasActions else { return }
            try text("default")
            try text("")
            for action in post.actions {
                try text(action.key)
                try text(action.label)
            }
        }
        try dictionary { () throws(BusError) in
            try property("urgency", .byte(UInt8(clamping: post.urgency)))
            try property("desktop-entry", .text(post.client))
            if post.isRenewal {
                try property("suppress-sound", .bool(true))
            } else if !post.sound.isEmpty {
                try property("sound-name", .text(post.sound))
            }
            // Some servers replace a notification with the same tag: one that was shown before its number
            // was reported is not seen twice there.
            try property("x-dunst-stack-tag", .text("nightbell-\(post.number)"))
        }
        // The server's own choice.
        try signed(-1)
    }

    private static func escaped(_ text: String) -> String {
        var result = ""
        // By scalar: a mark that combines with a sign does not hide it.
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result
    }
}
