import Launching
import NightbellCore
import TransferModel
import Yams

/// Subscriptions to issues.
extension ManifestReader {
    private static let intervals = Duration.seconds(600)...Duration.seconds(366 * 86_400)

    /// Nil: there is none.
    mutating func readNewsstand(
        _ values: [String: Node], _ modes: Modes, _ account: Account?
    ) -> Subscription? {
        guard let node = values["newsstand"] else {
            if modes.contains(.newsstand), let node = values["modes"] {
                complain(node, "newsstand", "is missing: the mode newsstand needs an address")
            }
            return nil
        }
        guard modes.contains(.newsstand) else {
            complain(node, "newsstand", "needs the mode newsstand")
            return nil
        }
        guard case .mapping(let mapping) = node else {
            complain(node, "newsstand", "expected url and every, such as {url: https://…, every: 1d}")
            return nil
        }
        var url: TransferURL?
        var interval = Duration.seconds(86_400)
        for (key, value) in mapping {
            switch key.scalar?.string {
            case "url": url = readAddress(value)
            case "every": interval = readInterval(value) ?? interval
            default:
                complain(
                    key, "newsstand.\(key.scalar?.string ?? "")", "is not a key; there are url and every")
            }
        }
        guard mapping["url"] != nil else {
            complain(node, "newsstand.url", "is missing")
            return nil
        }
        guard account?.identity.user != 0 || !problems.isEmpty else {
            complain(node, "newsstand", "needs a user other than root, which transfers nothing")
            return nil
        }
        return url.map { Subscription($0, interval: interval.components.seconds) }
    }

    private mutating func readAddress(_ node: Node) -> TransferURL? {
        let expected = "an address of http or https"
        guard let text = text(node, "newsstand.url", expected) else { return nil }
        if let url = TransferURL(text) { return url }
        complain(node, "newsstand.url", "expected \(expected), not '\(text)'")
        return nil
    }

    private mutating func readInterval(_ node: Node) -> Duration? {
        let expected = "a duration from 10m to 366d, such as 1d"
        guard let text = text(node, "newsstand.every", expected) else { return nil }
        if let interval = DurationText.parse(text), Self.intervals.contains(interval) { return interval }
        complain(node, "newsstand.every", "expected \(expected), not '\(text)'")
        return nil
    }
}
