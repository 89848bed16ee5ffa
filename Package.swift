// swift-tools-version: 6.2
import PackageDescription

let settings: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
]
let strict: [SwiftSetting] = settings + [.strictMemorySafety()]

// Fault points, at which tests kill the process; in debug builds only.
let faulty: [SwiftSetting] = strict + [.define("NIGHTBELL_FAULTS", .when(configuration: .debug))]

let package = Package(
    name: "nightbell",
    products: [
        .library(name: "Nightbell", targets: ["Nightbell"]),
        .library(name: "NightbellSupervisor", targets: ["NightbellSupervisor"]),
        .library(name: "NightbellParking", targets: ["NightbellParking"]),
        .library(name: "NightbellNIO", targets: ["NightbellNIO"]),
        .executable(name: "nightbelld", targets: ["nightbelld"]),
        .executable(name: "nightbell", targets: ["nightbell"]),
        .executable(name: "nightbell-monitor", targets: ["nightbell-monitor"]),
        .executable(name: "nightbell-gateway", targets: ["nightbell-gateway"]),
        .executable(name: "nightbell-transfer", targets: ["nightbell-transfer"]),
        .executable(name: "nightbell-distributor", targets: ["nightbell-distributor"]),
        .executable(name: "nightbell-sim", targets: ["nightbell-sim"]),
        .executable(name: "nightbell-load", targets: ["nightbell-load"]),
        .executable(name: "nightbell-softphone", targets: ["nightbell-softphone"]),
        .executable(name: "nightbell-demo", targets: ["nightbell-demo"]),
        .executable(name: "parrot", targets: ["parrot"]),
        .executable(name: "mode-example", targets: ["mode-example"]),
        .executable(name: "newsreader", targets: ["newsreader"]),
        .executable(name: "echo-server", targets: ["echo-server"]),
        .executable(name: "line-server", targets: ["line-server"]),
        .executable(name: "chat-server", targets: ["chat-server"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.0"),
        .package(url: "https://github.com/apple/swift-configuration", from: "1.4.0", traits: []),
        .package(url: "https://github.com/apple/swift-crypto", from: "4.5.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.0"),
        .package(url: "https://github.com/apple/swift-protobuf", from: "1.39.0"),
        // For NightbellNIO, and a server that tests talk to.
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.0"),
        .package(url: "https://github.com/HdrHistogram/hdrhistogram-swift", from: "0.2.0"),
        // For the gateway only.
        .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.0", traits: []),
        .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
        .package(url: "https://github.com/apple/swift-http-types", from: "1.8.0"),
        .package(url: "https://github.com/apple/swift-metrics.git", from: "2.7.0"),
        .package(url: "https://github.com/apple/swift-nio-extras", from: "1.35.0"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        .package(url: "https://github.com/jpsim/Yams", from: "6.2.0"),
        // For nightbell-transfer, and the push service of the gateway.
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
    ],
    targets: [
        // C, as thin as possible.
        .systemLibrary(name: "CLibevent", pkgConfig: "libevent", providers: [.apt(["libevent-dev"])]),
        .systemLibrary(
            name: "CSystemd", pkgConfig: "libsystemd", providers: [.apt(["libsystemd-dev"])]),
        .systemLibrary(name: "CUdev", pkgConfig: "libudev", providers: [.apt(["libudev-dev"])]),
        .target(name: "CLinux"),
        // SwiftPM says that it ignores -D_REENTRANT, which PipeWire's headers do not need.
        .systemLibrary(
            name: "CPipeWire", pkgConfig: "libpipewire-0.3", providers: [.apt(["libpipewire-0.3-dev"])]),
        .target(name: "CAudio", dependencies: ["CPipeWire"]),
        .target(name: "CMachine"),
        .systemLibrary(
            name: "CCurl", pkgConfig: "libcurl", providers: [.apt(["libcurl4-openssl-dev"])]),

        // Pure: no I/O, no clock, no Foundation.
        .target(name: "Identifiers", swiftSettings: strict),
        // Deliberate mistakes for the simulator to find, in debug builds only.
        .target(
            name: "NightbellCore", dependencies: ["Identifiers"],
            swiftSettings: strict + [.define("NIGHTBELL_MUTATIONS", .when(configuration: .debug))]),
        .target(name: "NightbellProfiles", swiftSettings: strict),
        .target(
            name: "NightbellWire",
            dependencies: [.product(name: "SwiftProtobuf", package: "swift-protobuf")],
            exclude: ["monitor.proto", "nightbell.proto", "push.proto", "records.proto"],
            swiftSettings: settings),

        .target(name: "LinuxSystem", dependencies: ["CLinux"], swiftSettings: faulty),
        .target(
            name: "EventLoop", dependencies: ["CLibevent", "CLinux", "LinuxSystem"], swiftSettings: strict),
        // Handlers of events, for processes beside the supervisor.
        .target(
            name: "EventHandlers", dependencies: ["EventLoop", "LinuxSystem"], swiftSettings: strict),
        .target(
            name: "ProcessPrivileges", dependencies: ["CLinux", "CMachine", "LinuxSystem"],
            swiftSettings: strict),
        .target(
            name: "Suspension", dependencies: ["CLinux", "LinuxSystem", "NightbellWire"],
            swiftSettings: strict),
        .target(name: "Launching", dependencies: ["CLinux", "LinuxSystem"], swiftSettings: strict),
        .target(name: "ProcessWaits", dependencies: ["CLinux", "LinuxSystem"], swiftSettings: strict),

        // Holds the state that a supervisor must not lose, and replaces a worker that has died.
        .target(name: "Keeper", dependencies: ["CLinux", "LinuxSystem"], swiftSettings: faulty),

        // Libraries for users.

        // For servers that park their own idle sockets: without keeper, launching and protobuf.
        .target(
            name: "NightbellParking", dependencies: ["LinuxSystem", "NightbellCore", "NightbellProfiles"],
            swiftSettings: faulty),
        .target(
            name: "NightbellSupervisor",
            dependencies: [
                "CLinux", "NightbellCore", "NightbellParking", "NightbellProfiles", "NightbellWire",
                "LinuxSystem", "EventLoop", "Keeper", "Launching", "Suspension", "TransferModel",
                "TransferWire",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: faulty),
        .target(
            name: "Nightbell",
            dependencies: [
                "Identifiers", "NightbellWire", "LinuxSystem", "TransferWire",
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict),

        // Idle channels of SwiftNIO; no other target depends on it.
        .target(
            name: "NightbellNIO",
            dependencies: [
                "CLinux", "NightbellCore", "NightbellParking",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOTLS", package: "swift-nio"),
            ],
            swiftSettings: settings),

        // Programs for users, and the parts of them that are tested on their own.
        .target(
            name: "Manifests",
            dependencies: [
                "Launching", "LinuxSystem", "NightbellCore", "TransferModel",
                .product(name: "Yams", package: "Yams"),
            ],
            swiftSettings: strict),
        .target(
            name: "DaemonConfiguration",
            dependencies: [
                "LinuxSystem", "Manifests", "NightbellCore",
                .product(name: "Configuration", package: "swift-configuration"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Yams", package: "Yams"),
            ],
            swiftSettings: strict),
        // General formatting: text for users and JSON for programs.
        .target(name: "Presentation", dependencies: ["LinuxSystem"], swiftSettings: strict),
        // The answers of the administration interface, as text and as JSON.
        .target(name: "StatusReports", dependencies: ["Nightbell", "Presentation"], swiftSettings: strict),
        .executableTarget(
            name: "nightbelld",
            dependencies: [
                "CLinux", "DaemonConfiguration", "Keeper", "Launching", "LinuxSystem", "Manifests",
                "NightbellCore",
                "NightbellSupervisor",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: strict),
        // Units that systemd freezes.
        .target(
            name: "SystemdUnits", dependencies: ["CSystemd", "LinuxSystem"], swiftSettings: strict),
        .executableTarget(
            name: "nightbell",
            dependencies: [
                "CLinux", "Identifiers", "Launching", "Nightbell", "NightbellCore", "NightbellProfiles",
                "NightbellWire", "LinuxSystem", "Manifests", "Presentation", "StatusReports",
                "ProcessWaits", "Suspension", "SystemdUnits",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict),

        // The process that observes the machine for a supervisor.
        .target(
            name: "MachineMonitor",
            dependencies: [
                "CAudio", "CLinux", "CMachine", "CSystemd", "CUdev", "EventHandlers", "EventLoop",
                "LinuxSystem", "NightbellWire",
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict),
        .executableTarget(
            name: "nightbell-monitor",
            dependencies: [
                "CLinux", "LinuxSystem", "MachineMonitor", "ProcessPrivileges",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: strict),

        // Downloads and uploads of a user's clients, in a process of their own. The decisions are pure.
        .target(name: "TransferModel", swiftSettings: strict),
        .target(
            name: "TransferWire",
            dependencies: [.product(name: "SwiftProtobuf", package: "swift-protobuf")],
            exclude: ["transfer.proto"],
            swiftSettings: settings),
        // A client that waits, for measurements and tests.
        .target(
            name: "TransferClient",
            dependencies: [
                "LinuxSystem", "TransferWire", .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict),
        .target(
            name: "TransferEngine",
            dependencies: [
                "CCurl", "CLinux", "EventHandlers", "EventLoop", "LinuxSystem", "TransferModel",
                "TransferWire",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict),
        .executableTarget(
            name: "nightbell-transfer",
            dependencies: [
                "CLinux", "EventHandlers", "LinuxSystem", "ProcessPrivileges", "TransferEngine",
                "TransferModel",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: strict),

        // Keeps messages for clients until these have handled them: a part of the gateway's process.
        .target(
            name: "PushService",
            dependencies: [
                "EventHandlers", "EventLoop", "Identifiers", "LinuxSystem", "NightbellWire",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict),
        // Hands messages of the push service to programs that know nothing of Nightbell, by UnifiedPush.
        .executableTarget(
            name: "nightbell-distributor",
            dependencies: [
                "CSystemd", "EventHandlers", "EventLoop", "LinuxSystem", "MachineMonitor", "Nightbell",
                "NightbellWire", .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: strict),
        // The process that people and machines talk to by HTTP. Nothing of it is built for the other
        // programs.
        .target(
            name: "Gateway",
            dependencies: [
                "Identifiers", "LinuxSystem", "Nightbell", "NightbellWire", "Presentation", "PushService",
                "StatusReports",
                .product(name: "CoreMetrics", package: "swift-metrics"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "HeapModule", package: "swift-collections"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "HummingbirdTLS", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOHTTPTypes", package: "swift-nio-extras"),
                .product(name: "NIOHTTPTypesHTTP1", package: "swift-nio-extras"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ],
            resources: [.embedInCode("Page")],
            swiftSettings: settings),
        .executableTarget(
            name: "nightbell-gateway",
            dependencies: [
                "Gateway", "Nightbell", .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: settings),

        // The real core in a simulated world.
        .target(
            name: "Simulation", dependencies: ["NightbellCore", "TransferModel"], swiftSettings: strict),
        .executableTarget(
            name: "nightbell-sim",
            dependencies: [
                "NightbellCore", "Presentation", "Simulation",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: strict),

        // SIP, for the load tester and for the softphone and the demo among the examples.
        .target(
            name: "SIPKit",
            dependencies: [.product(name: "Crypto", package: "swift-crypto")],
            swiftSettings: settings),

        // A browser, for measurements and tests.
        .target(name: "Chromium", dependencies: ["LinuxSystem", "Presentation"], swiftSettings: settings),
        // The load tester, and the floors for its ratios.
        .target(name: "CFloors"),
        .target(name: "CChat"),
        .target(name: "CPhone"),
        // For tests. SwiftPM links Swift's runtime to it, which takes longer to load than the measured work:
        // scripts/build-phone links one without.
        .executableTarget(name: "nightbell-phone", dependencies: ["CPhone"]),
        .executableTarget(name: "nightbell-echo"),
        .target(name: "CTorture"),
        .executableTarget(name: "nightbell-torture", dependencies: ["CTorture"]),
        .target(
            name: "LoadTester",
            dependencies: [
                "CChat", "CFloors", "Chromium", "CPhone", "CTorture", "LinuxSystem", "Nightbell",
                "NightbellCore", "NightbellWire", "Presentation", "SIPKit", "Simulation",
                "TransferClient", "TransferWire",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Histogram", package: "hdrhistogram-swift"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: settings),
        .executableTarget(
            name: "nightbell-load",
            dependencies: [
                "LoadTester", .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: settings),
        .testTarget(
            name: "LoadTests",
            dependencies: [
                "CChat", "CFloors", "LinuxSystem", "LoadTester", "NightbellCore", "Presentation",
                "Simulation", .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: settings),

        // Examples: code to read and copy from; the demo and the tests run them. Nothing in Sources depends
        // on them.
        .executableTarget(
            name: "nightbell-softphone",
            dependencies: [
                "Nightbell", "SIPKit",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            path: "Examples/Softphone",
            swiftSettings: settings),
        .executableTarget(
            name: "parrot", dependencies: ["Nightbell"], path: "Examples/Parrot", packageAccess: false,
            swiftSettings: settings),
        .executableTarget(
            name: "mode-example", dependencies: ["CSystemd", "Nightbell"], path: "Examples/Modes",
            packageAccess: false,
            swiftSettings: settings),
        .executableTarget(
            name: "newsreader", dependencies: ["Nightbell"], path: "Examples/Newsreader",
            packageAccess: false,
            swiftSettings: settings),
        .executableTarget(
            name: "echo-server", dependencies: ["NightbellParking"], path: "Examples/EchoServer",
            swiftSettings: settings),
        // Compiled like a program of another package: it sees only public declarations.
        .executableTarget(
            name: "line-server",
            dependencies: [
                "NightbellNIO",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            path: "Examples/LineServer",
            packageAccess: false,
            swiftSettings: settings),
        .target(
            name: "ChatService",
            dependencies: [
                "NightbellNIO",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOFoundationEssentialsCompat", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOWebSocket", package: "swift-nio"),
            ],
            path: "Examples/ChatServer/Service",
            resources: [.embedInCode("Page")],
            swiftSettings: settings),
        .executableTarget(
            name: "chat-server",
            dependencies: [
                "ChatService", .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            path: "Examples/ChatServer/Command",
            swiftSettings: settings),
        .executableTarget(
            name: "nightbell-demo",
            dependencies: [
                "Nightbell", "SIPKit",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Histogram", package: "hdrhistogram-swift"),
            ],
            path: "Examples/Demo",
            swiftSettings: settings),

        // Shared code and programs of the tests.
        .target(name: "CTestSupport", path: "Tests/CTestSupport"),
        .executableTarget(name: "nightbell-threads", path: "Tests/Threads"),
        .executableTarget(name: "monitor-relay", path: "Tests/MonitorRelay"),
        .target(
            name: "EdgeTestSupport",
            dependencies: ["CLinux", "LinuxSystem"],
            path: "Tests/EdgeTestSupport",
            exclude: ["pretended-clock.c"],
            swiftSettings: settings),
        // Programs of this package as users start them, and a browser.
        .target(
            name: "ProgramTestSupport",
            dependencies: ["Chromium", "EdgeTestSupport", "LinuxSystem", "Presentation"],
            path: "Tests/ProgramTestSupport",
            swiftSettings: settings),
        .executableTarget(
            name: "scripted-client",
            dependencies: ["Nightbell", "LinuxSystem"],
            path: "Tests/ScriptedClient",
            swiftSettings: settings),
        .executableTarget(
            name: "websocket-server",
            dependencies: [
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOWebSocket", package: "swift-nio"),
            ],
            path: "Tests/WebSocketServer",
            swiftSettings: settings),

        .testTarget(
            name: "NightbellCoreTests", dependencies: ["NightbellCore", "Simulation"], swiftSettings: strict),
        .testTarget(
            name: "NightbellProfilesTests", dependencies: ["NightbellProfiles", "Simulation"],
            swiftSettings: settings),
        .testTarget(
            name: "SimulationTests", dependencies: ["NightbellCore", "Simulation"], swiftSettings: strict),
        .testTarget(
            name: "LinuxSystemTests",
            dependencies: ["CLinux", "CTestSupport", "EdgeTestSupport", "LinuxSystem"],
            swiftSettings: settings),
        .testTarget(
            name: "EventLoopTests",
            dependencies: ["CLinux", "LinuxSystem", "EventLoop", "EdgeTestSupport"],
            swiftSettings: settings),
        .testTarget(
            name: "SuspensionTests",
            dependencies: [
                "CLinux", "CTestSupport", "LinuxSystem", "Suspension", "EdgeTestSupport", "nightbell-threads",
            ],
            swiftSettings: settings),
        .testTarget(
            name: "ProcessWaitsTests",
            dependencies: ["CLinux", "EdgeTestSupport", "LinuxSystem", "ProcessWaits"],
            swiftSettings: settings),
        .executableTarget(
            name: "nightbell-kept", dependencies: ["CLinux", "Keeper", "LinuxSystem"], path: "Tests/Kept",
            swiftSettings: settings),
        .testTarget(
            name: "KeeperTests",
            dependencies: ["LinuxSystem", "Keeper", "EdgeTestSupport", "nightbell-kept"],
            swiftSettings: settings),
        .testTarget(
            name: "NightbellSupervisorTests",
            dependencies: [
                "NightbellSupervisor", "NightbellCore", "NightbellWire", "LinuxSystem", "EventLoop", "Keeper",
                "Launching", "Suspension", "CTestSupport", "EdgeTestSupport", "nightbell",
                "nightbell-monitor", "nightbelld", "monitor-relay", "scripted-client", "websocket-server",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: settings),
        .testTarget(
            name: "ParkingTests",
            dependencies: [
                "CTestSupport", "EdgeTestSupport", "LinuxSystem", "NightbellCore", "NightbellParking",
                "NightbellProfiles",
            ],
            swiftSettings: settings),
        .testTarget(
            name: "NIOTests",
            dependencies: [
                "EdgeTestSupport", "NightbellCore", "NightbellNIO", "NightbellParking",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOTLS", package: "swift-nio"),
            ],
            swiftSettings: settings),
        .testTarget(
            name: "ChatTests",
            dependencies: [
                "ChatService", "EdgeTestSupport", "LinuxSystem", "Presentation", "ProgramTestSupport",
                "chat-server", "echo-server", "line-server",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOWebSocket", package: "swift-nio"),
            ],
            swiftSettings: settings),
        .testTarget(
            name: "MachineMonitorTests",
            dependencies: [
                "EdgeTestSupport", "LinuxSystem", "MachineMonitor", "NightbellWire", "mode-example",
                "nightbell", "nightbell-monitor", "nightbelld", "scripted-client",
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: settings),
        .testTarget(
            name: "TransferModelTests", dependencies: ["TransferModel"], swiftSettings: strict),
        .testTarget(
            name: "TransferTests",
            dependencies: [
                "EdgeTestSupport", "EventHandlers", "LinuxSystem", "TransferClient", "TransferEngine",
                "TransferModel",
                "TransferWire", "nightbell", "nightbell-transfer", "nightbelld", "scripted-client",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            exclude: ["odd-server.py", "slow-disk.py"],
            swiftSettings: settings),
        .testTarget(
            name: "NightbellTests",
            dependencies: [
                "Nightbell", "NightbellWire", "TransferWire", "LinuxSystem",
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: settings),
        .testTarget(
            name: "AdministrationTests",
            dependencies: [
                "LinuxSystem", "Nightbell", "NightbellWire",
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: settings),
        .testTarget(
            name: "CommandLineTests",
            dependencies: [
                "CLinux", "EdgeTestSupport", "LinuxSystem", "ProgramTestSupport", "mode-example", "nightbell",
                "nightbell-gateway", "nightbell-monitor",
                "nightbell-phone", "nightbell-transfer", "nightbelld", "parrot", "scripted-client",
                "Suspension",
            ],
            swiftSettings: settings),
        .testTarget(
            name: "GatewayTests",
            dependencies: [
                "EdgeTestSupport", "Gateway", "LinuxSystem", "Nightbell", "Presentation",
                "ProgramTestSupport", "PushService", "mode-example", "nightbell", "nightbell-distributor",
                "nightbell-gateway", "nightbelld", "scripted-client",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
            ],
            exclude: ["connector.py"],
            swiftSettings: settings),
        .testTarget(
            name: "DaemonTests", dependencies: ["DaemonConfiguration", "Manifests", "NightbellCore"],
            swiftSettings: settings),
        .testTarget(
            name: "ManifestTests",
            dependencies: ["EdgeTestSupport", "Launching", "Manifests", "NightbellCore", "TransferModel"],
            swiftSettings: settings),
        .testTarget(
            name: "LaunchingTests",
            dependencies: ["CLinux", "CTestSupport", "EdgeTestSupport", "Launching", "LinuxSystem"],
            swiftSettings: settings),
        .testTarget(
            name: "PackageTests", dependencies: ["DaemonConfiguration", "Nightbell", "NightbellWire"],
            swiftSettings: settings),
        .testTarget(
            name: "PresentationTests",
            dependencies: ["Nightbell", "NightbellWire", "Presentation", "StatusReports"],
            swiftSettings: settings),
        .testTarget(name: "SIPKitTests", dependencies: ["SIPKit"], swiftSettings: settings),
        .testTarget(
            name: "DemoTests",
            dependencies: [
                "EdgeTestSupport", "Launching", "LinuxSystem", "Nightbell", "NightbellCore",
                "NightbellSupervisor", "NightbellWire", "ProgramTestSupport", "SIPKit", "monitor-relay",
                "nightbell-demo", "newsreader", "nightbell-gateway", "nightbell-softphone",
                "nightbell-transfer", "nightbelld",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: settings),
    ]
)
