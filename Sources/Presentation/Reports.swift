package import Nightbell

/// What people read: text for a terminal of some width (nil: not a terminal, nothing is cut).
package enum Report {
    package static func list(_ clients: [ClientInfo], width: Int?) -> [String] {
        var table = Table([
            .init("CLIENT", shrinks: true), .init("PID", .right), .init("UID", .right), .init("STATE"),
            .init("FOR", .right), .init("SOCKETS", .right), .init("WAKES", .right), .init("ASLEEP", .right),
            .init("AVOIDED", .right), .init("KEEP-ALIVE", .right), .init("WARNINGS", shrinks: true),
        ])
        for client in clients {
            table.add([
                client.identifier, String(client.processID), String(client.uid), client.state.name,
                Human.duration(client.inState), String(client.socketCount), String(client.counters.wakes),
                percent(client.shareAsleep), client.offload.map { String($0.wakesAvoided) } ?? "-",
                keepAlive(client), client.warnings.joined(separator: "; "),
            ])
        }
        return table.lines(width: width)
    }

    private static func keeper(_ status: SupervisorStatus) -> String {
        guard let keeper = status.keeperProcessID else { return "none: what it knows is lost with it" }
        return "process \(keeper)"
            + (status.restarts == 0 ? "" : ", has replaced it \(status.restarts) times")
    }

    package static func status(_ status: SupervisorStatus, socketPath: String, width: Int?) -> [String] {
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
            ("memory", Human.bytes(status.memoryBytes)),
            ("offload", sentence(status.offload)),
            ("next timer", status.nextDeadline.map { "in " + Human.duration($0) } ?? "none"),
        ]
        if status.isStopping { facts.append(("stopping", "yes")) }
        var lines = aligned(facts, width: width)
        lines += counters(status.counters, width: width)
        if !status.users.isEmpty {
            var table = Table([
                .init("UID", .right), .init("CLIENTS", .right), .init("SOCKETS", .right),
                .init("WAKES", .right),
            ])
            for user in status.users {
                table.add([String(user.uid), String(user.clients), String(user.sockets), String(user.wakes)])
            }
            lines += [""] + table.lines(width: width)
        }
        return lines
    }

    package static func show(_ client: ClientInfo, width: Int?) -> [String] {
        var facts = [
            ("client", client.identifier),
            (
                "process",
                "\(client.processID) of uid \(client.uid), connected for \(Human.duration(client.connected))"
            ),
            (
                "state",
                joined(client.state.name + " for " + Human.duration(client.inState), client.stateDetail)
            ),
            (
                "modes",
                client.modes.isEmpty ? "none" : client.modes.map(\.rawValue).sorted().joined(separator: ", ")
            ),
            ("suspension", client.suspension),
            ("asleep", "\(percent(client.shareAsleep)), \(Human.duration(client.counters.asleep)) in all"),
            ("keep-alive", keepAliveSentence(client)),
            (
                "background tasks",
                client.backgroundTasks.isEmpty ? "none" : client.backgroundTasks.joined(separator: ", ")
            ),
        ]
        if client.isMediaActive { facts.append(("media", "active")) }
        if let launch = client.launch {
            facts.append(("command", launch.arguments.joined(separator: " ")))
            facts.append(("directory", launch.directory))
        }
        facts += client.warnings.map { ("warning", $0) }
        var lines = aligned(facts, width: width)
        lines += counters(client.counters, width: width)
        if !client.sockets.isEmpty { lines += [""] + sockets(client.sockets, width: width) }
        let offloaded = client.sockets.filter { $0.offload != nil }
        if !offloaded.isEmpty { lines += [""] + offloads(offloaded, width: width) }
        return lines
    }

    private static func offloads(_ sockets: [ClientInfo.Socket], width: Int?) -> [String] {
        var table = Table([
            .init("SOCKET"), .init("PROFILE"), .init("ACTIVE"), .init("SENT", .right),
            .init("CONFIRMED", .right), .init("ANSWERED", .right), .init("ABSORBED", .right),
            .init("WAKES AVOIDED", .right), .init("NEXT PING", .right),
        ])
        for socket in sockets {
            guard let offload = socket.offload else { continue }
            table.add(
                [socket.tokenText, offload.profile, offload.isActive ? "yes" : "no"]
                    + offload.counters.named.map { String($0.value) }
                    + [offload.nextPing.map { "in " + Human.duration($0) } ?? "-"])
        }
        return table.lines(width: width)
    }

    private static func sentence(_ offload: OffloadCounters) -> String {
        offload.named.map { "\($0.value) \($0.name.split(separator: "_").joined(separator: " "))" }
            .joined(separator: ", ")
    }

    /// One line for one event; `clock` is its time of day as text.
    package static func event(_ event: ClientEvent, clock: String, width: Int?) -> [String] {
        var lines: [String] = []
        if event.dropped > 0 {
            lines.append("\(clock)  … \(event.dropped) events were lost: they were not read fast enough")
        }
        let words = [clock, event.identifier, event.kind, event.state.name, event.detail]
        lines.append(words.map(printable).filter { !$0.isEmpty }.joined(separator: "  "))
        return width.map { width in lines.map { shortened($0, to: width) } } ?? lines
    }

    private static func sockets(_ sockets: [ClientInfo.Socket], width: Int?) -> [String] {
        var table = Table([
            .init("SOCKET"), .init("NAME", shrinks: true), .init("TAG"), .init("KIND"), .init("CONDITION"),
            .init("LOCAL", shrinks: true), .init("PEER", shrinks: true),
        ])
        for socket in sockets {
            table.add([
                socket.tokenText, socket.name, socket.tag?.rawValue ?? "unknown", socket.kind,
                socket.condition,
                socket.local, socket.peer,
            ])
        }
        return table.lines(width: width)
    }

    /// Only what has happened: most counters of most clients are zero.
    private static func counters(_ counters: SupervisionCounters, width: Int?) -> [String] {
        let happened = counters.named.filter { $0.value > 0 }
        guard !happened.isEmpty else { return [] }
        return [""]
            + aligned(
                happened.map {
                    ($0.name.split(separator: "_").joined(separator: " "), String($0.value))
                }, width: width)
    }

    /// Names on the left, facts on the right of them, in one line each.
    package static func aligned(_ facts: [(name: String, text: String)], width: Int?) -> [String] {
        let names = facts.reduce(0) { max($0, $1.name.count) }
        return facts.map { name, text in
            let line = name + String(repeating: " ", count: names - name.count + 2) + printable(text)
            return width.map { shortened(line, to: $0) } ?? line
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

    private static func keepAliveSentence(_ client: ClientInfo) -> String {
        guard let timeout = client.keepAliveTimeout else { return "none" }
        let every = "every \(Human.duration(timeout))"
        return client.keepAliveDueIn.map { "\(every), due within \(Human.duration($0))" } ?? every
    }
}
