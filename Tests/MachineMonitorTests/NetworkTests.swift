import EdgeTestSupport
import LinuxSystem
import NightbellWire
import Testing

@Suite(
    "The network, in a namespace of its own",
    .enabled(if: NetworkNamespace.isPossible, "network namespaces need root"))
struct NetworkTests {
    private func network(_ fact: MonitorProcess.Fact) -> WireMonitorReport.Network? {
        if case .network(let network) = fact { network } else { nil }
    }

    private func addresses(_ network: WireMonitorReport.Network) -> [[UInt8]] {
        network.addresses.map { [UInt8]($0) }
    }

    @Test("Without a link there is no address, and the network is down")
    func empty() throws {
        let namespace = try NetworkNamespace()
        let monitor = try MonitorProcess(namespace: namespace)
        try monitor.demand([.network])
        let first = try monitor.first { network($0) }
        #expect(first.addresses.isEmpty && first.defaultRoutes.isEmpty && !first.isUp)
        #expect(first.metered == .unspecified)
    }

    @Test("Addresses and default routes are reported as they come and go")
    func changes() throws {
        let namespace = try NetworkNamespace()
        try namespace.addPair()
        try namespace.ip("address add 192.0.2.7/24 dev v0")
        let monitor = try MonitorProcess(namespace: namespace)
        try monitor.demand([.network])
        let first = try monitor.first { network($0) }
        #expect(addresses(first) == [[192, 0, 2, 7]] && !first.isUp)

        try namespace.ip("route add default via 192.0.2.1")
        let routed = try monitor.first { network($0).flatMap { $0.isUp ? $0 : nil } }
        #expect(routed.defaultRoutes == "4 via 192.0.2.1 dev v0 metric 0")
        #expect(routed.generation > first.generation)

        try namespace.ip("-6 address add 2001:db8::7/64 dev v0 nodad")
        let both = try monitor.first { network($0).flatMap { $0.addresses.count == 2 ? $0 : nil } }
        #expect(addresses(both)[1].prefix(4) == [0x20, 0x01, 0x0D, 0xB8])

        try namespace.ip("address del 192.0.2.7/24 dev v0")
        let after = try monitor.first { network($0).flatMap { $0.addresses.count == 1 ? $0 : nil } }
        // The kernel has removed the route with the address, and says nothing of it.
        #expect(after.defaultRoutes.isEmpty && !after.isUp)
    }

    @Test("A link that goes down takes its addresses and routes along")
    func linkDown() throws {
        let namespace = try NetworkNamespace()
        try namespace.addPair()
        try namespace.ip("address add 192.0.2.7/24 dev v0")
        try namespace.ip("route add default via 192.0.2.1")
        let monitor = try MonitorProcess(namespace: namespace)
        try monitor.demand([.network])
        _ = try monitor.first { network($0).flatMap { $0.isUp ? $0 : nil } }
        // The other end: the carrier is lost, while the kernel keeps address and route.
        try namespace.ip("link set v1 down")
        let down = try monitor.first { network($0).flatMap { $0.isUp ? nil : $0 } }
        #expect(down.addresses.isEmpty && down.defaultRoutes.isEmpty)
        try namespace.ip("link set v1 up")
        let up = try monitor.first { network($0).flatMap { $0.isUp ? $0 : nil } }
        #expect(up.generation > down.generation)
    }

    @Test("A flapping link is one report")
    func flapping() throws {
        let namespace = try NetworkNamespace()
        try namespace.addPair()
        try namespace.ip("address add 192.0.2.7/24 dev v0")
        let monitor = try MonitorProcess(namespace: namespace)
        try monitor.demand([.network])
        let first = try monitor.first { network($0) }
        for _ in 0..<10 {
            try namespace.ip("address add 192.0.2.8/24 dev v0")
            try namespace.ip("address del 192.0.2.8/24 dev v0")
        }
        let settled = try monitor.first { network($0) }
        #expect(addresses(settled) == addresses(first))
        #expect(settled.generation == first.generation + 20)
        #expect(try monitor.next(within: 1_500) == nil)
    }

    @Test("A source that is not demanded any more is closed, and its next first report is sent")
    func closing() throws {
        let namespace = try NetworkNamespace()
        let monitor = try MonitorProcess(namespace: namespace)
        try monitor.demand([.network])
        _ = try monitor.first { network($0) }
        let open = ProcFS.openDescriptors(monitor.pid)
        try monitor.demand([])
        #expect(eventually { ProcFS.openDescriptors(monitor.pid) ?? .max < open ?? 0 })
        try namespace.addPair()
        #expect(try monitor.next(within: 1_500) == nil)
        try monitor.demand([.network])
        _ = try monitor.first { network($0) }
    }
}

@Suite("Metered connections") struct MeteredTests {
    private func metered(_ fact: MonitorProcess.Fact) -> WireMonitorAnswer? {
        if case .network(let network) = fact { network.metered } else { nil }
    }

    @Test("NetworkManager's word is part of the report, and unknown without it")
    func networkManager() throws {
        let bus = try PrivateBus()
        let monitor = try MonitorProcess(environment: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        try monitor.demand([.network])
        #expect(try monitor.first { metered($0) } == .unspecified)
        let mock = try MockService(
            bus, name: "org.freedesktop.NetworkManager", path: "/org/freedesktop/NetworkManager",
            interface: "org.freedesktop.NetworkManager")
        try mock.tell(
            "AddProperty", "org.freedesktop.NetworkManager", "Metered", "<uint32 2>")
        for (value, answer) in [(1, WireMonitorAnswer.yes), (4, .no), (3, .yes), (0, .unspecified)] {
            try mock.update("org.freedesktop.NetworkManager", "{'Metered': <uint32 \(value)>}")
            _ = try monitor.first { metered($0) == answer ? true : nil }
        }
        try mock.update("org.freedesktop.NetworkManager", "{'Metered': <uint32 1>}")
        _ = try monitor.first { metered($0) == .yes ? true : nil }
        mock.end()
        _ = try monitor.first { metered($0) == .unspecified ? true : nil }
    }
}
