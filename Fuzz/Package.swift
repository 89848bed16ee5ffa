// swift-tools-version: 6.2
import PackageDescription

// A package of its own, because everything in it is compiled with coverage counters for libFuzzer, which also
// brings the main function. The sources are those of Nightbell (the directories are links): fuzzers use
// declarations with `package` access. Built and run by scripts/fuzz.

let settings: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
]

let package = Package(
    name: "nightbell-fuzz",
    dependencies: [
        .package(url: "https://github.com/apple/swift-protobuf", from: "1.39.0")
    ],
    targets: [
        .target(name: "NightbellProfiles", swiftSettings: settings + [.strictMemorySafety()]),
        .target(
            name: "NightbellWire",
            dependencies: [.product(name: "SwiftProtobuf", package: "swift-protobuf")],
            exclude: ["nightbell.proto"],
            swiftSettings: settings),
        .executableTarget(
            name: "fuzz-profiles", dependencies: ["NightbellProfiles"],
            swiftSettings: settings + [.unsafeFlags(["-parse-as-library"])]),
        .executableTarget(
            name: "fuzz-wire",
            dependencies: [
                "NightbellProfiles", "NightbellWire",
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: settings + [.unsafeFlags(["-parse-as-library"])]),
    ]
)
