package import Nightbell
package import Presentation

/// Reports for people: text for a terminal of some width (nil: not a terminal, nothing is cut).
package enum Report {
    package static func list(_ clients: [ClientInfo], width: Int?, paint: Paint = .none) -> [String] {
        var columns: [Table.Column] = [
            .init("CLIENT", shrinks: true), .init("PID", .right), .init("UID", .right, leaves: 4),
            .init("STATE", colour: { Paint.Colour.state($0) }), .init("FOR", .right),
            .init("SOCKETS", .right, leaves: 2), .init("WAKES", .right), .init("ASLEEP", .right),
            .init("AVOIDED", .right, leaves: 3), .init("KEEP-ALIVE", .right, leaves: 1),
        ]
        // Warnings are sentences: on a terminal they are printed below the client, without a column.
        if width == nil { columns.append(.init("WARNINGS")) }
        var table = Table(columns)
        for client in clients {
            table.add(
                [
                    client.identifier, client.processID > 0 ? String(client.processID) : "-",
                    String(client.uid), client.state.name, Human.duration(client.inState),
                    String(client.socketCount), String(client.counters["wakes"]), percent(client.shareAsleep),
                    client.offload.map { String($0.wakesAvoided) } ?? "-", keepAlive(client),
                    client.warnings.joined(separator: "; "),
                ], notes: width == nil ? [] : client.warnings)
        }
        return table.lines(width: width, paint: paint)
    }

    private static func keeper(_ status: SupervisorStatus) -> String {
        guard let keeper = status.keeperProcessID else { return "none: its state is lost if it ends" }
        return "process \(keeper)"
            + (status.restarts == 0
                ? "" : ", has replaced it " + (status.restarts == 1 ? "once" : "\(status.restarts) times"))
    }

    package static func status(
        _ status: SupervisorStatus, socketPath: String, width: Int?, paint: Paint = .none
    ) -> [String] {
        let states = status.clientsByState.filter { $0.value > 0 }.sorted { $0.key < $1.key }
        let clients = status.clientsByState.values.reduce(0, +)
        var facts = [
            (
                "supervisor",
                "\(status.version), process \(status.processID), up \(Human.duration(status.uptime))"
            ),
            ("keeper", keeper(status)),
            ("socket", socketPath),
            ("configuration", status.configurationFile ?? "defaults; no file was read"),
            ("suspension", joined(status.suspension, status.suspensionDetail)),
            (
                "clients",
                "\(clients)"
                    + (states.isEmpty
                        ? "" : ": " + states.map { "\($0.value) \($0.key)" }.joined(separator: ", "))
            ),
            ("sockets", "\(status.sockets) parked"),
            ("connections", String(status.connections)),
            ("descriptors", "\(status.descriptorsOpen) of \(status.descriptorsLimit)"),
            ("memory", memory(status)),
            ("offload", sentence(status.offload)),
            ("next timer", status.nextDeadline.map { "in " + Human.duration($0) } ?? "none"),
        ]
        if status.isStopping { facts.append(("stopping", "yes")) }
        facts += status.sources.map { ($0.name, $0.isAvailable ? "known" : "unknown: \($0.reason)") }
        if let monitor = status.monitorProcessID { facts.append(("monitor", "process \(monitor)")) }
        if !status.alarmProblem.isEmpty {
            facts.append(("alarm", "the machine does not wake for keep-alives: \(status.alarmProblem)"))
        }
        if !status.notRunning.isEmpty {
            let others = status.notRunningUnnamed
            facts.append(
                (
                    "not running",
                    status.notRunning.joined(separator: ", ") + (others > 0 ? " and \(others) more" : "")
                ))
        }
        facts += status.warnings.map { ("warning", $0) }
        var lines = aligned(facts, width: width, paint: paint)
        lines += counters(status.counters, width: width, paint: paint)
        if !status.users.isEmpty {
            var table = Table([
                .init("UID", .right), .init("CLIENTS", .right), .init("SOCKETS", .right),
                .init("WAKES", .right),
            ])
            for user in status.users {
                table.add([String(user.uid), String(user.clients), String(user.sockets), String(user.wakes)])
            }
            lines += [""] + table.lines(width: width, paint: paint)
        }
        return lines
    }

    package static func reload(_ report: ReloadReport) -> [String] {
        let lines =
            report.changed.map { "changed: \($0)" } + report.kept.map { "from the next start: \($0)" }
            + report.problems.map { "problem: \($0)" }
        return lines.isEmpty ? ["nothing has changed"] : lines.map(printable)
    }

    package static func show(_ client: ClientInfo, width: Int?, paint: Paint = .none) -> [String] {
        var facts = [
            ("client", client.identifier),
            ("process", processSentence(client)),
            (
                "state",
                joined(client.state.name + " for " + Human.duration(client.inState), client.stateDetail)
            ),
            (
                "modes",
                client.modes.isEmpty ? "none" : client.modes.map(\.rawValue).sorted().joined(separator: ", ")
            ),
        ]
        if !client.suspension.isEmpty { facts.append(("suspension", client.suspension)) }
        facts += [
            ("asleep", "\(percent(client.shareAsleep)), \(Human.duration(client.counters.asleep)) in all"),
            ("keep-alive", keepAliveSentence(client)),
            (
                "background tasks",
                client.backgroundTasks.isEmpty ? "none" : client.backgroundTasks.joined(separator: ", ")
            ),
        ]
        if let fetch = client.fetch { facts.append(("fetch", fetchSentence(fetch))) }
        facts += client.observations.map { ("observes", $0.sentence) }
        if client.isMediaActive { facts.append(("media", "active")) }
        if client.pendingNotifications > 0 {
            facts.append(("notifications", "\(client.pendingNotifications) pending: nightbell notifications"))
        }
        if client.wantsNetworkChanges { facts.append(("network changes", "wake it")) }
        if client.isUnmodified { facts.append(("program", "as it is: it knows nothing of Nightbell")) }
        if let pagedOut = client.pagedOut { facts.append(("paged out", sentence(pagedOut))) }
        if let launch = client.launch {
            facts.append(("command", launch.arguments.joined(separator: " ")))
            facts.append(("directory", launch.directory))
        }
        facts += client.warnings.map { ("warning", $0) }
        var lines = aligned(facts, width: width, paint: paint)
        lines += counters(client.counters, width: width, paint: paint)
        if !client.sockets.isEmpty { lines += [""] + sockets(client.sockets, width: width, paint: paint) }
        if client.sockets.count < client.socketCount {
            lines.append("and \(client.socketCount - client.sockets.count) more sockets")
        }
        let offloaded = client.sockets.filter { $0.offload != nil }
        if !offloaded.isEmpty { lines += [""] + offloads(offloaded, width: width, paint: paint) }
        lines += client.sockets.filter { $0.dropped > 0 }.map { socket in
            "\(socket.tokenText) has lost \(socket.dropped) datagrams for lack of buffer space"
        }
        return lines
    }

    private static func offloads(_ sockets: [ClientInfo.Socket], width: Int?, paint: Paint) -> [String] {
        var table = Table([
            .init("SOCKET"), .init("PROFILE"), .init("ACTIVE", leaves: 2), .init("SENT", .right),
            .init("CONFIRMED", .right, leaves: 3), .init("ANSWERED", .right), .init("ABSORBED", .right),
            .init("AVOIDED", .right), .init("NEXT PING", .right, leaves: 1),
        ])
        for socket in sockets {
            guard let offload = socket.offload else { continue }
            table.add(
                [socket.tokenText, offload.profile, offload.isActive ? "yes" : "no"]
                    + offload.counters.named.map { String($0.value) }
                    + [offload.nextPing.map { "in " + Human.duration($0) } ?? "-"])
        }
        return table.lines(width: width, paint: paint)
    }

    private static func sentence(_ pagedOut: ClientInfo.PagedOut) -> String {
        let amounts =
            "\(Human.bytes(pagedOut.bytes)) in the last sleep, \(Human.bytes(pagedOut.totalBytes)) in all"
        guard !pagedOut.limit.isEmpty else { return amounts }
        return pagedOut.totalBytes > 0 ? "\(amounts); \(pagedOut.limit)" : pagedOut.limit
    }

    private static func memory(_ status: SupervisorStatus) -> String {
        let own = Human.bytes(status.memoryBytes)
        guard status.memoryReclaimedBytes > 0 else { return own }
        return "\(own); clients gave back \(Human.bytes(status.memoryReclaimedBytes))"
    }

    private static func sentence(_ offload: OffloadCounters) -> String {
        offload.named.map { "\($0.value) \($0.name.split(separator: "_").joined(separator: " "))" }
            .joined(separator: ", ")
    }

    /// A line for an event; `clock` is its time of day as text.
    package static func event(
        _ event: ClientEvent, clock: String, width: Int?, paint: Paint = .none
    ) -> [String] {
        var lines: [String] = []
        if event.dropped > 0 {
            lines += hanging(
                "\(clock)  ", "… \(event.dropped) events were lost: they were not read fast enough",
                width: width)
        }
        // The detail of a state change contains both states.
        let isChange = event.kind == "state"
        let words = [event.identifier, event.kind, isChange ? "" : event.state.name, event.detail]
        let text = words.map(printable).filter { !$0.isEmpty }.joined(separator: "  ")
        let colour: Paint.Colour? = event.kind == "wake" ? .green : isChange ? .state(event.state.name) : nil
        return lines + hanging("\(clock)  ", text, width: width, paint: paint, colour)
    }

    private static func sockets(_ sockets: [ClientInfo.Socket], width: Int?, paint: Paint) -> [String] {
        var table = Table([
            .init("SOCKET"), .init("NAME", shrinks: true), .init("TAG", leaves: 1), .init("KIND"),
            .init("CONDITION"), .init("LOCAL", shrinks: true, leaves: 2), .init("PEER", shrinks: true),
        ])
        for socket in sockets {
            table.add([
                socket.tokenText, socket.name, socket.tag?.rawValue ?? "unknown", socket.kind,
                socket.condition,
                socket.local, socket.peer,
            ])
        }
        return table.lines(width: width, paint: paint)
    }

    /// Non-zero counters only: most counters of most clients are zero.
    private static func counters(_ counters: SupervisionCounters, width: Int?, paint: Paint) -> [String] {
        let happened = counters.named.filter { $0.value > 0 }
        guard !happened.isEmpty else { return [] }
        return [""]
            + aligned(
                happened.map {
                    ($0.name.split(separator: "_").joined(separator: " "), String($0.value))
                }, width: width, paint: paint)
    }

    /// Names on the left, values on the right.
    package static func aligned(
        _ facts: [(name: String, text: String)], width: Int?, paint: Paint = .none
    ) -> [String] {
        let names = facts.reduce(0) { max($0, $1.name.count) }
        return facts.flatMap { name, text in
            hanging(
                name + String(repeating: " ", count: names - name.count + 2), printable(text), width: width,
                paint: paint, .dim)
        }
    }

    private static func joined(_ text: String, _ detail: String) -> String {
        detail.isEmpty ? text : "\(text) (\(detail))"
    }

    private static func percent(_ share: Double?) -> String {
        guard let share else { return "-" }
        let tenths = Int((share * 1_000).rounded(.down))
        return "\(tenths / 10).\(tenths % 10)%"
    }

    private static func keepAlive(_ client: ClientInfo) -> String {
        if let due = client.keepAliveDueIn { return "in " + Human.duration(due) }
        return client.keepAliveTimeout == nil ? "-" : "set"
    }

    /// A client without a connection has never said Hello, or is dormant.
    private static func processSentence(_ client: ClientInfo) -> String {
        let process = client.processID > 0 ? "\(client.processID) of" : "none, of"
        let connection =
            client.suspension.isEmpty ? "not connected" : "connected for \(Human.duration(client.connected))"
        return "\(process) uid \(client.uid), \(connection)"
    }

    private static func fetchSentence(_ fetch: ClientInfo.Fetch) -> String {
        var parts: [String]
        switch fetch.minimumInterval {
        case .never: parts = ["never"]
        case .minimum: parts = ["as often as possible"]
        case .atLeast(let interval): parts = ["at most every \(Human.duration(interval))"]
        }
        parts.append("score \(fetch.score) of 100")
        if fetch.isRunning { parts.append("under way") }
        if let next = fetch.next { parts.append("next within \(Human.duration(next))") }
        if let obstacle = fetch.obstacle { parts.append("waits: \(sentence(obstacle))") }
        if let last = fetch.lastAgo { parts.append("last \(Human.duration(last)) ago") }
        if fetch.unfinishedInRow > 0 { parts.append("\(fetch.unfinishedInRow) not completed in a row") }
        let hours = fetch.usualHours.map { "\($0)h" }.joined(separator: ", ")
        if !hours.isEmpty { parts.append("usually opened at \(hours)") }
        return parts.joined(separator: ", ")
    }

    private static func sentence(_ obstacle: ClientInfo.Fetch.Obstacle) -> String {
        switch obstacle {
        case .networkDown: "the network is down"
        case .shortage: "memory or processors are short"
        case .machineSleeps: "the machine is about to sleep"
        case .places: "as many fetches are going on as may at a time"
        case .placesOfUser: "as many fetches of its user are going on as may at a time"
        }
    }

    private static func keepAliveSentence(_ client: ClientInfo) -> String {
        guard let timeout = client.keepAliveTimeout else { return "none" }
        let every = "every \(Human.duration(timeout))"
        return client.keepAliveDueIn.map { "\(every), due within \(Human.duration($0))" } ?? every
    }
}
