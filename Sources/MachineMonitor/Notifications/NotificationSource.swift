import NightbellWire
import SwiftProtobuf

/// The notification server of the session (org.freedesktop.Notifications): shows what is demanded, and reports
/// what has become of it.
///
/// A notification is given to a server once, as long as it is demanded; another server is given all that are
/// demanded. A server that does not answer holds up nothing else, and shows what it was given when it goes on.
final class NotificationSource: Source {
    private let context: SourceContext
    private let connection: BusConnection
    private var service: BusService?
    private var subscriptions: [BusSubscription] = []
    private var demand = WireMonitorDemand()
    /// Those of the demand that this server was given.
    private var given: Set<Key> = []
    private var closed: Set<UInt32> = []
    /// nil: the server has not said yet what it can do.
    private var capabilities: Capabilities?
    /// The last tokens that the server has given for windows, by notification.
    private var tokens: [UInt32: String] = [:]

    private static let name = "org.freedesktop.Notifications"
    private static let path = "/org/freedesktop/Notifications"
    private static let longestText = 256
    private static let mostTokens = 16

    /// nil: there is no server.
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
                report(id) { $0.closed = .init() }
            },
        ]
        service.begin()
    }

    func update(_ demand: WireMonitorDemand) {
        self.demand = demand
        given.formIntersection(demand.posts.map(\.key))
        closed.formIntersection(demand.closes)
        work()
    }

    private func handle(_ presence: BusService.Presence) {
        switch presence {
        case .present:
            given = []
            closed = []
            tokens = [:]
            capabilities = nil
            askForCapabilities()
        case .doubtful: break
        case .absent(let absence):
            given = []
            closed = []
            capabilities = nil
            context.reports.setAbsent(.notifications, absence)
        }
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
        for post in demand.posts where given.insert(post.key).inserted { show(post, capabilities) }
        for id in demand.closes where closed.insert(id).inserted { close(id) }
    }

    private func show(_ post: WireMonitorDemand.Post, _ capabilities: Capabilities) {
        let server = server
        var post = post
        if post.replaces == 0 { post.replaces = shown?.id(of: post.key) ?? 0 }
        let asked = post
        service?.call(
            Self.path, Self.name, "Notify", isPatient: true,
            { (writer) throws(BusError) in try writer.notification(asked, capabilities) },
            reply: { [unowned self] reply in
                do throws(BusError) {
                    let id = try reply.get().number()
                    guard id != 0 else { throw BusError.unexpected }
                    shown?.note(asked.key, id)
                    report(id) {
                        $0.shown = .with {
                            $0.number = asked.number
                            $0.revision = asked.revision
                            $0.server = server
                        }
                    }
                } catch {
                    let reason = String("\(error)".prefix(Self.longestText))
                    report(0) {
                        $0.refused = .with {
                            $0.number = asked.number
                            $0.revision = asked.revision
                            $0.reason = reason
                        }
                    }
                }
            })
        if post.hasBadge, !post.isRenewal { showBadge(post) }
    }

    /// The number beside the client's icon, for launchers and docks.
    private func showBadge(_ post: WireMonitorDemand.Post) {
        guard let handle = unsafe connection.handle else { return }
        let signal = BusCall(
            destination: "", path: "/com/canonical/unity/launcherentry/nightbell",
            interface: "com.canonical.Unity.LauncherEntry", member: "Update"
        ) { (writer) throws(BusError) in
            try writer.text("application://\(post.client).desktop")
            try writer.dictionary { () throws(BusError) in
                try writer.property("count", .long(Int64(post.badge)))
                try writer.property("count-visible", .bool(post.badge > 0))
            }
        }
        unsafe BusSlot.emit(handle, signal)
    }

    private func close(_ id: UInt32) {
        service?.call(
            Self.path, Self.name, "CloseNotification",
            { (writer) throws(BusError) in try writer.number(id) },
            // One that it does not know is closed as well.
            reply: { [unowned self] _ in report(id) { $0.closed = .init() } })
    }

    private func report(
        _ id: UInt32, _ change: (inout WireMonitorReport.NotificationEvent) -> Void
    ) {
        var event = WireMonitorReport.NotificationEvent()
        event.id = id
        change(&event)
        context.reports.report(notification: event)
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
