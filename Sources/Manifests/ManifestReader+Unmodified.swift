import NightbellCore
import Yams

/// Programs that know nothing of Nightbell.
extension ManifestReader {
    /// Nil: the program knows Nightbell.
    mutating func readUnmodified(_ values: [String: Node], _ modes: Modes) -> UnmodifiedOptions? {
        let isUnmodified = values["unmodified"].flatMap { truth($0, "unmodified") } ?? false
        guard isUnmodified else {
            for key in ["timers", "idle", "pageOut", "firstByte", "profiles"] {
                if let node = values[key] { complain(node, key, "needs unmodified: true") }
            }
            return nil
        }
        for key in ["keepAlive", "wakeLimitPolicy", "exitsOnSuspend", "newsstand"] {
            if let node = values[key] {
                complain(node, key, "means nothing to a program that is unmodified: it is told nothing")
            }
        }
        if let node = values["modes"], !modes.isSubset(of: .voip) {
            complain(node, "modes", "expected [voip] or [] for a program that is unmodified")
        }
        var options = UnmodifiedOptions()
        if let node = values["timers"] { options.timers = readTimers(node) ?? options.timers }
        if let node = values["idle"] { options.idle = readTime(node, "idle") ?? options.idle }
        options.pageOut = values["pageOut"].flatMap { readTime($0, "pageOut") }
        options.firstByte = values["firstByte"].flatMap { truth($0, "firstByte") } ?? false
        if let node = values["profiles"] { options.profiles = readProfiles(node) }
        return options
    }

    private mutating func readProfiles(_ node: Node) -> [PortProfile] {
        list(node, "profiles", "[irc:6667]").compactMap { node in
            guard let text = text(node, "profiles", "a protocol, such as irc:6667") else { return nil }
            do throws(PortProfile.Problem) {
                return try PortProfile(text)
            } catch {
                complain(node, "profiles", "\(error), not '\(text)'")
                return nil
            }
        }
    }

    private mutating func readTimers(_ node: Node) -> TimerPolicy? {
        let expected = "exact, ignore, or coalesce= and at most a day, such as coalesce=60s"
        guard let text = text(node, "timers", expected) else { return nil }
        if let policy = TimerPolicy(text) { return policy }
        complain(node, "timers", "expected \(expected), not '\(text)'")
        return nil
    }

    private mutating func readTime(_ node: Node, _ key: String) -> Duration? {
        let expected = "a duration from 100ms to 1h, such as 30s"
        guard let text = text(node, key, expected) else { return nil }
        if let time = UnmodifiedOptions.time(text) { return time }
        complain(node, key, "expected \(expected), not '\(text)'")
        return nil
    }
}
