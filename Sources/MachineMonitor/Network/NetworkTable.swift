import CMachine
import Glibc

/// The links, addresses and default routes of the machine, as far as they matter for connections.
struct NetworkTable {
    private struct Link {
        var name: String
        var isUsable: Bool
    }

    private struct Address: Hashable {
        let link: UInt32
        let bytes: [UInt8]
        let prefixLength: UInt8
    }

    private struct Route: Hashable {
        let family: CInt
        let table: UInt32
        let metric: UInt32
        let gateway: [UInt8]
        let link: UInt32
        let nextHops: UInt32
    }

    private var links: [UInt32: Link] = [:]
    /// Whether each one can be used.
    private var addresses: [Address: Bool] = [:]
    private var defaultRoutes: Set<Route> = []
    /// Whether there are more addresses than are held.
    private(set) var isOverflowing = false

    /// More addresses do not fit into a report.
    static let mostAddresses = 2_048
    private static let mostRoutes = 256
    /// `RT_SCOPE_LINK` of linux/rtnetlink.h: an address is valid on its link only.
    private static let linkScope: UInt8 = 253

    /// Whether the message tells of a change that connections may notice.
    struct Effect: Equatable {
        var isChange = false
        /// The kernel removes routes of version 4 without a notification.
        var mayRemoveRoutes = false
    }

    mutating func apply(_ message: cmachine_network_message) -> Effect {
        switch cmachine_network_subject(UInt32(message.subject)) {
        case CMACHINE_NETWORK_LINK: applyLink(message)
        case CMACHINE_NETWORK_ADDRESS: applyAddress(message)
        case CMACHINE_NETWORK_ROUTE: applyRoute(message)
        default: Effect()
        }
    }

    mutating func removeDefaultRoutes() { defaultRoutes = [] }

    private mutating func applyLink(_ message: cmachine_network_message) -> Effect {
        let old = links[message.link]
        let name = unsafe withUnsafeBytes(of: message.name) { bytes in
            unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        }
        let new = message.is_removal == 0 ? Link(name: name, isUsable: message.is_usable != 0) : nil
        links[message.link] = new
        let wasUsable = old?.isUsable ?? false
        let isUsable = new?.isUsable ?? false
        return Effect(isChange: wasUsable != isUsable, mayRemoveRoutes: !isUsable)
    }

    private mutating func applyAddress(_ message: cmachine_network_message) -> Effect {
        // It comes and goes with its link.
        guard message.scope < Self.linkScope else { return Effect() }
        let address = Address(
            link: message.link, bytes: Self.bytes(message), prefixLength: message.prefix_length)
        if message.is_removal != 0 {
            let wasUsable = addresses.removeValue(forKey: address) ?? false
            return Effect(isChange: wasUsable, mayRemoveRoutes: true)
        }
        guard addresses[address] != nil || addresses.count < Self.mostAddresses else {
            isOverflowing = true
            return Effect(isChange: true)
        }
        let isUsable = message.is_usable != 0
        let wasUsable = addresses.updateValue(isUsable, forKey: address) ?? false
        return Effect(isChange: wasUsable != isUsable)
    }

    private mutating func applyRoute(_ message: cmachine_network_message) -> Effect {
        guard message.is_cached == 0, message.is_usable != 0 else { return Effect() }
        guard message.prefix_length == 0 else { return Effect(isChange: message.is_answer == 0) }
        let route = Route(
            family: message.family, table: message.table, metric: message.metric,
            gateway: Self.bytes(message), link: message.link, nextHops: message.next_hops)
        if message.is_removal != 0 {
            return Effect(isChange: defaultRoutes.remove(route) != nil)
        }
        guard defaultRoutes.count < Self.mostRoutes else { return Effect(isChange: true) }
        return Effect(isChange: defaultRoutes.insert(route).inserted)
    }

    private static func bytes(_ message: cmachine_network_message) -> [UInt8] {
        unsafe withUnsafeBytes(of: message.address) { bytes in
            unsafe Array(bytes.prefix(Int(message.address_length)))
        }
    }

    // MARK: Reading

    /// The addresses that can be used, sorted.
    var usableAddresses: [[UInt8]] {
        var found: Set<[UInt8]> = []
        for (address, isValid) in addresses
        where isValid && isUsable(address.link) {
            found.insert(address.bytes)
        }
        return found.sorted {
            $0.count != $1.count ? $0.count < $1.count : $0.lexicographicallyPrecedes($1)
        }
    }

    private func isUsable(_ link: UInt32) -> Bool { links[link]?.isUsable ?? false }

    /// The default routes in their order of preference, such as `4 via 192.0.2.1 dev eth0 metric 100`.
    var defaultRouteText: String {
        let usable = defaultRoutes.filter { $0.link == 0 || isUsable($0.link) }
        return usable.sorted(by: precedes).map(text).joined(separator: "\n")
    }

    private func precedes(_ first: Route, _ second: Route) -> Bool {
        if first.family != second.family { return first.family < second.family }
        if first.table != second.table { return first.table < second.table }
        if first.metric != second.metric { return first.metric < second.metric }
        return text(first) < text(second)
    }

    private func text(_ route: Route) -> String {
        var text = route.family == AF_INET ? "4" : "6"
        if !route.gateway.isEmpty { text += " via \(Self.text(route.gateway))" }
        if route.link != 0 { text += " dev \(links[route.link]?.name ?? "\(route.link)")" }
        if route.nextHops != 0 { text += " hops \(String(route.nextHops, radix: 16))" }
        text += " metric \(route.metric)"
        // The main one.
        if route.table != 254 { text += " table \(route.table)" }
        return text
    }

    private static func text(_ address: [UInt8]) -> String {
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        let family = address.count == 4 ? AF_INET : AF_INET6
        guard unsafe inet_ntop(family, address, &text, socklen_t(text.count)) != nil else { return "?" }
        return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}
