import Launching
import Yams

/// The identity, environment and limits of the program.
extension ManifestReader {
    // MARK: User and groups

    /// Nil: none is named, or there is no such account. The program then runs as the reader of the manifest.
    mutating func readAccount(_ values: [String: Node]) -> Account? {
        var account: Account?
        if let node = values["user"], let name = text(node, "user", "a user's name or uid") {
            account = accounts.user(name)
            if let account {
                if accounts.reader != 0, account.identity.user != accounts.reader {
                    complain(node, "user", "can be another user only where the supervisor runs as root")
                }
            } else {
                complain(node, "user", "names no user of this machine: '\(name)'")
            }
        } else {
            account = accounts.user(String(accounts.reader))
        }
        if let node = values["group"], let group = readGroup(node, "group") {
            account?.identity.group = group
        }
        if let node = values["groups"] {
            let groups = list(node, "groups", "[audio, video]").compactMap { readGroup($0, "groups") }
            account?.identity.otherGroups = groups
        }
        if let count = account?.identity.otherGroups.count, count > ProcessIdentity.mostGroups {
            let key = values["groups"] != nil ? "groups" : "user"
            if let node = values[key] {
                complain(node, key, "\(count) groups, and \(ProcessIdentity.mostGroups) are the most")
            }
        }
        for key in ["group", "groups"] where accounts.reader != 0 {
            if let node = values[key] { complain(node, key, "works only where the supervisor runs as root") }
        }
        return account
    }

    private mutating func readGroup(_ node: Node, _ key: String) -> UInt32? {
        guard let name = text(node, key, "a group's name or gid") else { return nil }
        if let group = accounts.group(name) { return group }
        complain(node, key, "names no group of this machine: '\(name)'")
        return nil
    }

    // MARK: Environment

    /// The default variables, and those of the manifest.
    mutating func readEnvironment(_ node: Node?, _ account: Account?) -> [String: String] {
        var result = ["PATH": LaunchSpecification.standardPath]
        if let account {
            result["HOME"] = account.home
            result["USER"] = account.name
            result["LOGNAME"] = account.name
            result["SHELL"] = account.shell
        }
        guard let node else { return result }
        guard case .mapping(let mapping) = node else {
            complain(node, "environment", "expected names with values, such as LEVEL: '3'")
            return result
        }
        for (key, value) in mapping {
            let name = key.scalar?.string ?? ""
            if name.isEmpty || name.utf8.contains(UInt8(ascii: "=")) || name.utf8.contains(0) {
                complain(key, "environment", "'\(name)' is not the name of a variable")
            } else if LaunchSpecification.isReserved(name) {
                complain(key, "environment.\(name)", "is set by the supervisor")
            } else if let text = value.scalar?.string {
                result[name] = text
                if text.utf8.contains(0) { complain(value, "environment.\(name)", "contains a zero byte") }
            } else {
                complain(value, "environment.\(name)", "expected a text")
            }
        }
        return result
    }

    // MARK: Limits

    private enum Unit { case count, bytes, seconds }

    private struct LimitKey {
        var name: String
        var resource: ResourceLimit.Resource
        var unit: Unit
        /// With less no program could start.
        var least: UInt64 = 0
    }

    private static let limitKeys = [
        // The standard three, the connection, and one for the dynamic loader.
        LimitKey(name: "openFiles", resource: .openFiles, unit: .count, least: 5),
        // The process itself.
        LimitKey(name: "processes", resource: .processes, unit: .count, least: 1),
        LimitKey(name: "memory", resource: .memory, unit: .bytes, least: 64 << 10),
        LimitKey(name: "data", resource: .data, unit: .bytes, least: 16 << 10),
        LimitKey(name: "stack", resource: .stack, unit: .bytes, least: 16 << 10),
        LimitKey(name: "core", resource: .core, unit: .bytes),
        LimitKey(name: "fileSize", resource: .fileSize, unit: .bytes),
        LimitKey(name: "lockedMemory", resource: .lockedMemory, unit: .bytes),
        LimitKey(name: "cpuTime", resource: .cpuTime, unit: .seconds),
    ]

    mutating func readLimits(_ node: Node) -> [ResourceLimit] {
        let names = Self.limitKeys.map(\.name).joined(separator: ", ")
        guard case .mapping(let mapping) = node else {
            complain(node, "limits", "expected names with values, out of \(names)")
            return []
        }
        var result: [ResourceLimit] = []
        for (key, value) in mapping {
            let name = key.scalar?.string ?? ""
            guard let limit = Self.limitKeys.first(where: { $0.name == name }) else {
                let similar = Spelling.nearest(to: name, among: Self.limitKeys.map(\.name))
                let hint = similar.map { "did you mean \($0)?" } ?? "there are \(names)"
                complain(key, "limits.\(name)", "is not a limit; \(hint)")
                continue
            }
            guard let number = readNumber(value.scalar?.string ?? "", limit.unit) else {
                let example =
                    switch limit.unit {
                    case .count: "a number such as 256"
                    case .bytes: "a number of bytes such as 64M"
                    case .seconds: "a duration of whole seconds such as 60s"
                    }
                complain(value, "limits.\(name)", "expected \(example), or unlimited")
                continue
            }
            guard number >= limit.least else {
                let least = limit.unit == .bytes ? "\(limit.least >> 10)K" : "\(limit.least)"
                complain(value, "limits.\(name)", "no program runs with less than \(least)")
                continue
            }
            result.append(ResourceLimit(limit.resource, soft: number, hard: number))
        }
        return result
    }

    private func readNumber(_ text: String, _ unit: Unit) -> UInt64? {
        if text == "unlimited" { return ResourceLimit.unlimited }
        switch unit {
        case .count:
            return UInt64(text).flatMap { $0 < ResourceLimit.unlimited ? $0 : nil }
        case .bytes:
            let units: [Character: UInt64] = ["K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40]
            let factor = text.last.flatMap { units[$0] }
            guard let number = UInt64(factor == nil ? text[...] : text.dropLast()) else { return nil }
            let (bytes, overflow) = number.multipliedReportingOverflow(by: factor ?? 1)
            return overflow || bytes == ResourceLimit.unlimited ? nil : bytes
        case .seconds:
            guard let duration = DurationText.parse(text), duration.components.attoseconds == 0,
                duration.components.seconds > 0
            else { return nil }
            return UInt64(duration.components.seconds)
        }
    }
}
