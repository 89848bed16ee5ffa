// swift-tools-version: 6.2
import PackageDescription

// A package of its own, so that users of Nightbell neither fetch nor build the benchmark library. The core is
// compiled into it from the same sources (Sources/NightbellCore and others are links): benchmarks may use its `package`
// declarations, and the core needs none that exist only for them.

let settings: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
]

// Counts and ratios need no library and are checked wherever tests run; only measuring times fetches it
// (scripts/bench-core sets this).
let measuresTimes = Context.environment["NIGHTBELL_BENCHMARK_TIMES"] != nil

// Without its malloc interposer, which does not count here: `CAllocations` does.
let library: [Package.Dependency] = [
    .package(url: "https://github.com/ordo-one/benchmark", from: "1.38.1", traits: [])
]
let times: [Target] = [
    .executableTarget(
        name: "Core",
        dependencies: ["Workloads", .product(name: "Benchmark", package: "benchmark")],
        path: "Core",
        swiftSettings: settings,
        plugins: [.plugin(name: "BenchmarkPlugin", package: "benchmark")])
]

let package = Package(
    name: "nightbell-benchmarks",
    dependencies: measuresTimes ? library : [],
    targets: [
        .target(name: "Identifiers", swiftSettings: settings + [.strictMemorySafety()]),
        .target(
            name: "NightbellCore", dependencies: ["Identifiers"],
            swiftSettings: settings + [.strictMemorySafety()]),
        .target(name: "NightbellProfiles", swiftSettings: settings + [.strictMemorySafety()]),
        .target(name: "CAllocations"),
        .target(
            name: "Workloads", dependencies: ["NightbellCore", "NightbellProfiles"],
            swiftSettings: settings + [.strictMemorySafety()]),
        // Counts and ratios, with limits.
        .executableTarget(
            name: "core-checks", dependencies: ["CAllocations", "Workloads"], swiftSettings: settings),
    ] + (measuresTimes ? times : [])
)
