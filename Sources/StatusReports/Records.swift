package import Nightbell
package import Presentation

// The JSON output: member names are those of the wire schema, durations are whole milliseconds (`_ms`) or
// nanoseconds (`_ns`). Names and meanings stay; later versions may add members.

extension SupervisorStatus {
    package var json: JSON {
        [
            "version": .string(version),
            "process_id": .integer(Int64(processID)),
            "keeper_process_id": keeperProcessID.map { .integer(Int64($0)) } ?? .null,
            "restarts": .count(restarts),
            "uptime_ms": .milliseconds(uptime),
            "suspension": .string(suspension),
            "suspension_detail": .string(suspensionDetail),
            "configuration_file": configurationFile.map(JSON.string) ?? .null,
            "clients": .count(clientsByState.values.reduce(0, +)),
            "clients_by_state": .object(
                clientsByState.sorted { $0.key < $1.key }.map { .init(name: $0.key, value: .count($0.value)) }
            ),
            "sockets": .count(sockets),
            "connections": .count(connections),
            "counters": counters.json,
            "offload_by_profile": .object(
                offloadByProfile.sorted { $0.key < $1.key }.map { .init(name: $0.key, value: $0.value.json) }),
            "users": .array(users.map(\.json)),
            "descriptors_open": .count(descriptorsOpen),
            "descriptors_limit": .count(descriptorsLimit),
            "next_deadline_ms": nextDeadline.map(JSON.milliseconds) ?? .null,
            "stopping": .bool(isStopping),
            "memory_bytes": .unsigned(memoryBytes),
            "memory_reclaimed_bytes": .unsigned(memoryReclaimedBytes),
            "warnings": .array(warnings.map(JSON.string)),
            "sources": .array(
                sources.map {
                    [
                        "name": .string($0.name), "available": .bool($0.isAvailable),
                        "reason": .string($0.reason),
                    ]
                }),
            "monitor_process_id": monitorProcessID.map { .integer(Int64($0)) } ?? .null,
            "alarm_problem": .string(alarmProblem),
            "not_running": .array(notRunning.map(JSON.string)),
            "not_running_unnamed": .integer(Int64(notRunningUnnamed)), "push_socket": .string(pushSocket),
        ]
    }
}

extension ReloadReport {
    package var json: JSON {
        [
            "changed": .array(changed.map(JSON.string)), "kept": .array(kept.map(JSON.string)),
            "problems": .array(problems.map(JSON.string)),
        ]
    }
}

extension SupervisorStatus.User {
    var json: JSON {
        [
            "uid": .unsigned(UInt64(uid)), "clients": .count(clients), "sockets": .count(sockets),
            "wakes": .count(wakes),
        ]
    }
}

extension SupervisionCounters {
    /// Sorted by name; without the time asleep.
    package var named: [(name: String, value: Int)] {
        counts.sorted { $0.key < $1.key }.map { (name: $0.key, value: $0.value) }
    }

    var json: JSON {
        .object(
            named.map { .init(name: $0.name, value: .count($0.value)) }
                + [.init(name: "asleep_ns", value: .integer(asleep.wholeNanoseconds))])
    }
}

extension ClientInfo {
    /// - Parameter detailed: with the sockets and the launch specification, which only `show` has.
    package func json(detailed: Bool) -> JSON {
        var members: [JSON.Member] = [
            .init(name: "identifier", value: .string(identifier)),
            .init(name: "client_id", value: .string(clientID)),
            .init(name: "process_id", value: .integer(Int64(processID))),
            .init(name: "uid", value: .unsigned(UInt64(uid))),
            .init(name: "state", value: .string(state.name)),
            .init(name: "state_detail", value: .string(stateDetail)),
            .init(name: "awake_causes", value: .array(awakeCauses.map { .string($0.rawValue) })),
            .init(name: "in_state_ms", value: .milliseconds(inState)),
            .init(name: "connected_ms", value: .milliseconds(connected)),
            .init(
                name: "asleep_since_connected_ns", value: .integer(asleepSinceConnected.wholeNanoseconds)),
            .init(name: "modes", value: .array(modes.map(\.rawValue).sorted().map(JSON.string))),
            .init(name: "suspension", value: .string(suspension)),
            .init(name: "socket_count", value: .count(socketCount)),
            .init(name: "keep_alive_timeout_ms", value: keepAliveTimeout.map(JSON.milliseconds) ?? .null),
            .init(name: "keep_alive_due_in_ms", value: keepAliveDueIn.map(JSON.milliseconds) ?? .null),
            .init(name: "fetch", value: fetch?.json ?? .null),
            .init(name: "background_tasks", value: .array(backgroundTasks.map(JSON.string))),
            .init(name: "media_active", value: .bool(isMediaActive)),
            .init(name: "can_launch", value: .bool(canLaunch)),
            .init(name: "state_bytes", value: .count(stateBytes)),
            .init(name: "launches_in_row", value: .count(launchesInRow)),
            .init(name: "wants_network_changes", value: .bool(wantsNetworkChanges)),
            .init(name: "pending_notifications", value: .count(pendingNotifications)),
            .init(name: "unmodified", value: .bool(isUnmodified)),
            .init(name: "paged_out", value: pagedOut?.json ?? .null),
            .init(name: "warnings", value: .array(warnings.map(JSON.string))),
            .init(name: "counters", value: counters.json),
            .init(name: "offload", value: offload?.json ?? .null),
        ]
        if detailed {
            members.append(.init(name: "sockets", value: .array(sockets.map(\.json))))
            members.append(.init(name: "observations", value: .array(observations.map(\.json))))
            members.append(.init(name: "launch", value: launch?.json ?? .null))
        }
        return .object(members)
    }

    /// The share of its process's life that the client has slept, from 0 to 1; nil if it is not known yet.
    package var shareAsleep: Double? {
        guard connected > .zero else { return nil }
        return min(1, asleepSinceConnected / connected)
    }
}

extension ClientInfo.PagedOut {
    var json: JSON {
        ["bytes": .unsigned(bytes), "total_bytes": .unsigned(totalBytes), "limit": .string(limit)]
    }
}

extension ClientInfo.Fetch {
    var json: JSON {
        let interval: JSON =
            switch minimumInterval {
            case .never: .string("never")
            case .minimum: .string("minimum")
            case .atLeast(let duration): .milliseconds(duration)
            }
        return [
            "minimum_interval_ms": interval, "score": .count(score),
            "next_in_ms": next.map(JSON.milliseconds) ?? .null, "is_fetching": .bool(isRunning),
            "obstacle": obstacle.map { .string($0.rawValue) } ?? .null,
            "last_ago_ms": lastAgo.map(JSON.milliseconds) ?? .null, "observed_days": .count(observedDays),
            "usual_hours": .array(usualHours.map(JSON.count)), "unfinished_in_row": .count(unfinishedInRow),
        ]
    }
}

extension ClientInfo.State {
    /// As in the wire schema, in lower case.
    package var name: String { self == .notRunning ? "not_running" : rawValue }
}

extension ClientInfo.Socket {
    /// The token in the format of logs.
    package var tokenText: String {
        let digits = String(token, radix: 16)
        return String(repeating: "0", count: max(0, 16 - digits.count)) + digits
    }

    var json: JSON {
        [
            "token": .string(tokenText), "tag": tag.map { .string($0.rawValue) } ?? .null,
            "name": .string(name), "kind": .string(kind), "local": .string(local), "peer": .string(peer),
            "condition": .string(condition), "survives": .bool(survives), "offload": offload?.json ?? .null,
            "receive_buffer": .integer(Int64(receiveBuffer)), "dropped": .integer(Int64(dropped)),
        ]
    }
}

extension OffloadCounters {
    /// All counters by the names of the wire schema, in its order.
    var named: [(name: String, value: Int)] {
        [
            ("sent", sent), ("confirmed", confirmed), ("answered", answered), ("absorbed", absorbed),
            ("wakes_avoided", wakesAvoided),
        ]
    }

    var json: JSON { .object(named.map { .init(name: $0.name, value: .count($0.value)) }) }
}

extension ClientInfo.Offload {
    var json: JSON {
        [
            "profile": .string(profile), "active": .bool(isActive), "counters": counters.json,
            "awaiting_answer": .bool(isAwaitingAnswer),
            "next_ping_in_ms": nextPing.map(JSON.milliseconds) ?? .null,
        ]
    }
}

extension ClientInfo.Launch {
    var json: JSON {
        [
            "arguments": .array(arguments.map(JSON.string)),
            "directory": .string(directory),
            "environment": .object(
                environment.sorted { $0.key < $1.key }.map { .init(name: $0.key, value: .string($0.value)) }),
        ]
    }
}

extension ClientEvent {
    package var json: JSON {
        [
            "at_unix_ns": .unsigned(unixNanoseconds), "identifier": .string(identifier),
            "kind": .string(kind),
            "state": .string(state.name), "detail": .string(detail), "dropped": .count(dropped),
        ]
    }
}

extension JSON {
    static func count(_ value: Int) -> JSON { .integer(Int64(value)) }
    static func milliseconds(_ value: Duration) -> JSON { .integer(value.wholeNanoseconds / 1_000_000) }
}

extension Duration {
    /// Clamped to the range of `Int64`: 292 years.
    var wholeNanoseconds: Int64 {
        let (seconds, attoseconds) = components
        let (product, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
        return overflow ? (seconds < 0 ? .min : .max) : product &+ attoseconds / 1_000_000_000
    }
}
