import Testing

/// Arrows point down only: executables, then Supervisor, Parking or Nightbell, then the edge, then the pure
/// core.
@Suite("What each target may import")
struct ImportRulesTests {
    private static let pure: Set = ["DequeModule", "HeapModule", "OrderedCollections"]
    private static let edge: Set = ["CLinux", "Glibc", "Synchronization"]

    static let allowed: [String: Set<String>] = [
        "Identifiers": pure,
        "SystemdUnits": edge.union(["CSystemd", "LinuxSystem"]),
        "NightbellCore": pure.union(["Identifiers"]),
        "NightbellProfiles": pure,
        "Simulation": pure.union(["NightbellCore", "NightbellProfiles", "TransferModel"]),
        // Fields of type bytes are `Data` in generated code.
        "NightbellWire": ["Foundation", "FoundationEssentials", "SwiftProtobuf"],
        "LinuxSystem": edge,
        "EventLoop": edge.union(["CLibevent", "LinuxSystem"]),
        "EventHandlers": edge.union(["EventLoop", "LinuxSystem"]),
        "ProcessPrivileges": edge.union(["CMachine", "LinuxSystem"]),
        "Suspension": edge.union(["LinuxSystem", "NightbellWire"]),
        "ProcessWaits": edge.union(["LinuxSystem"]),
        "Keeper": edge.union(["LinuxSystem"]),
        "Launching": edge.union(["LinuxSystem"]),
        "Manifests": [
            "CYaml", "Glibc", "Launching", "LinuxSystem", "NightbellCore", "TransferModel", "Yams",
        ],
        "NightbellParking": edge.union(["NightbellCore", "NightbellProfiles", "LinuxSystem"]),
        "NightbellSupervisor": edge.union([
            "NightbellCore", "NightbellParking", "NightbellProfiles", "NightbellWire", "LinuxSystem",
            "EventLoop", "Keeper", "Launching", "Suspension", "Logging", "SwiftProtobuf", "TransferModel",
            "TransferWire",
        ]),
        "MachineMonitor": edge.union([
            "CAudio", "CMachine", "CSystemd", "CUdev", "EventHandlers", "EventLoop", "LinuxSystem",
            "NightbellWire", "SwiftProtobuf",
        ]),
        "nightbell-monitor": [
            "ArgumentParser", "CLinux", "Glibc", "LinuxSystem", "MachineMonitor", "ProcessPrivileges",
        ],
        "TransferModel": pure,
        // As for `NightbellWire`.
        "TransferWire": ["Foundation", "FoundationEssentials", "SwiftProtobuf"],
        "TransferClient": ["LinuxSystem", "SwiftProtobuf", "TransferWire"],
        "TransferEngine": edge.union([
            "CCurl", "Crypto", "DequeModule", "EventHandlers", "EventLoop", "FoundationEssentials", "GRDB",
            "LinuxSystem", "SwiftProtobuf", "TransferModel", "TransferWire",
        ]),
        "nightbell-transfer": [
            "ArgumentParser", "CLinux", "EventHandlers", "Glibc", "LinuxSystem", "ProcessPrivileges",
            "TransferEngine", "TransferModel",
        ],
        "NightbellNIO": edge.union([
            "NightbellCore", "NightbellParking", "NIOCore", "NIOPosix", "NIOTLS",
        ]),
        "Nightbell": edge.union([
            "Identifiers", "NightbellWire", "LinuxSystem", "SwiftProtobuf", "TransferWire", "DequeModule",
            "Synchronization",
        ]),
        "DaemonConfiguration": [
            "Manifests", "LinuxSystem", "NightbellCore", "Configuration", "Logging", "Yams", "Glibc",
            "Synchronization",
        ],
        "Presentation": ["LinuxSystem"],
        "StatusReports": ["Nightbell", "Presentation"],
        "SIPKit": ["Crypto", "Glibc"],
        "nightbell-distributor": edge.union([
            "ArgumentParser", "CSystemd", "EventHandlers", "EventLoop", "LinuxSystem", "MachineMonitor",
            "Nightbell", "NightbellWire",
        ]),
        "PushService": edge.union([
            "Crypto", "DequeModule", "EventHandlers", "EventLoop", "FoundationEssentials", "GRDB",
            "Identifiers", "LinuxSystem", "Logging", "NightbellWire", "Synchronization", "SwiftProtobuf",
        ]),
        // It knows the supervisor by the protocol only.
        "Gateway": [
            "CoreMetrics", "Crypto", "DequeModule", "Glibc", "HTTPTypes", "HeapModule", "Hummingbird",
            "HummingbirdCore", "HummingbirdTLS", "Identifiers",
            "LinuxSystem", "Logging", "NIOConcurrencyHelpers", "NIOCore", "NIOHTTP1", "NIOHTTPTypes",
            "NIOHTTPTypesHTTP1", "NIOPosix", "NIOSSL",
            "FoundationEssentials", "Nightbell", "NightbellWire", "Presentation", "PushService",
            "ServiceLifecycle", "StatusReports",
        ],
        "nightbell-gateway": ["ArgumentParser", "Gateway", "Glibc", "Logging", "Nightbell"],
        "Chromium": ["FoundationEssentials", "Glibc", "LinuxSystem", "Presentation"],
        "LoadTester": edge.union([
            "ArgumentParser", "CChat", "CFloors", "Chromium", "Crypto", "CPhone", "CTorture",
            "FoundationEssentials", "Histogram", "LinuxSystem", "Nightbell", "NightbellCore", "NightbellWire",
            "Presentation", "SIPKit", "Simulation", "SwiftProtobuf", "TransferClient", "TransferWire",
        ]),
        "nightbell-load": ["ArgumentParser", "LoadTester"],
        "nightbell-sim": ["ArgumentParser", "Glibc", "NightbellCore", "Presentation", "Simulation"],
        "nightbelld": [
            "ArgumentParser", "CLinux", "DaemonConfiguration", "Glibc", "Keeper", "Launching", "LinuxSystem",
            "Logging", "Manifests", "NightbellCore", "NightbellSupervisor", "Synchronization",
        ],
        "nightbell": [
            "ArgumentParser", "CLinux", "Glibc", "Identifiers", "Launching", "LinuxSystem", "Manifests",
            "Nightbell",
            "NightbellCore", "NightbellProfiles", "NightbellWire", "Presentation", "ProcessWaits",
            "StatusReports", "Suspension", "SystemdUnits",
            "SwiftProtobuf",
        ],
    ]
    /// Targets of C: their headers include the headers that they wrap.
    private static let headers: Set = [
        "CAudio", "CChat", "CFloors", "CPhone", "CTorture", "nightbell-echo", "nightbell-phone",
        "nightbell-torture", "CCurl", "CLibevent", "CLinux",
        "CMachine",
        "CPipeWire",
        "CSystemd", "CUdev",
    ]

    static var targets: [String] {
        get throws { try Repository.directories(in: "Sources").filter { !headers.contains($0) } }
    }

    @Test("No target imports what it may not", arguments: try targets)
    func imports(target: String) throws {
        let allowed = try #require(Self.allowed[target], "\(target) is new: say here what it may import")
        let files = try Repository.files(in: "Sources/\(target)", suffix: ".swift")
        #expect(!files.isEmpty)
        for file in files {
            let forbidden = try Repository.imports(of: file).subtracting(allowed)
            #expect(forbidden.isEmpty, "\(file) imports \(forbidden.sorted().joined(separator: ", "))")
        }
    }

    @Test("Only the targets of the wire, and those of processes beside the supervisor, have Foundation")
    func foundation() throws {
        let names: Set = ["Foundation", "FoundationEssentials"]
        let found = Self.allowed.filter { !$0.value.isDisjoint(with: names) }.map(\.key)
        #expect(
            Set(found) == [
                "Chromium", "Gateway", "LoadTester", "NightbellWire", "PushService", "TransferEngine",
                "TransferWire",
            ])
    }

    @Test("The core and the profiles know no clock and no input or output")
    func pureTargets() throws {
        let forbidden = [
            "ContinuousClock", "SuspendingClock", "SystemRandomNumberGenerator", "print(", ".random(",
        ]
        for target in ["NightbellCore", "NightbellProfiles"] where try Self.targets.contains(target) {
            for file in try Repository.files(in: "Sources/\(target)", suffix: ".swift") {
                let text = try Repository.text(file)
                for word in forbidden where text.contains(word) {
                    #expect(Bool(false), "\(file) has \(word)")
                }
            }
        }
    }

    @Test("The package description gives no target more than it may import")
    func dependencies() throws {
        // A dependency without a permitted import would be dead weight; `pure` targets must not reach
        // further.
        let description = try Repository.text("Package.swift")
        let core = try #require(description.firstRange(of: "name: \"NightbellCore\""))
        let end = try #require(description[core.upperBound...].firstRange(of: "swiftSettings"))
        let text = description[core.upperBound..<end.lowerBound]
        #expect(!text.contains("package: \"swift-") || text.contains("swift-collections"))
        #expect(!text.contains("Logging") && !text.contains("SwiftProtobuf"))
    }

    @Test("The reader of imports understands every form")
    func reader() throws {
        let own = try Repository.imports(of: "Tests/PackageTests/Repository.swift")
        #expect(own == ["Foundation"])
        let command = try Repository.imports(of: "Sources/nightbell/NightbellCommand.swift")
        #expect(command == ["ArgumentParser", "Manifests"])
    }
}
