import ArgumentParser
import Foundation
import LoadTester
import Testing

/// `scripts/bench` measures what `nightbell-load` can.
@Suite("scripts/bench")
struct BenchScriptTests {
    private static let root = URL(filePath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent()

    /// The arguments of each measurement. The settings of the script and its measurements are run, with this in place
    /// of the measuring.
    private func measurements(isQuick: Bool) throws -> [[String]] {
        let script = """
            set -euo pipefail
            measure() { shift; printf '%s\\n' "$*"; }
            quick=\(isQuick ? "yes" : "")
            eval "$(sed -n '/^rounds=/,/^measure soak/p' scripts/bench)"
            """
        let process = Process()
        process.executableURL = URL(filePath: "/bin/bash")
        process.arguments = ["-c", script]
        process.currentDirectoryURL = Self.root
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        let text = String(decoding: try output.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
        process.waitUntilExit()
        try #require(process.terminationStatus == 0)
        return text.split(separator: "\n").map { $0.split(separator: " ").map(String.init) }
    }

    @Test("All its command lines are understood, and no subcommand is left out", arguments: [false, true])
    func complete(isQuick: Bool) throws {
        let measurements = try measurements(isQuick: isQuick)
        for arguments in measurements {
            #expect(throws: Never.self, "\(arguments)") { _ = try LoadCommand.parseAsRoot(arguments) }
        }
        var names = Set(LoadCommand.configuration.subcommands.compactMap { $0.configuration.commandName })
        // A check, which measures nothing.
        names.remove("torture")
        // Programs are put to sleep by cgroup.
        if geteuid() != 0 { names.remove("unmodified") }
        #expect(Set(measurements.compactMap(\.first)) == names)
    }

    @Test("With and without kills where there are kills")
    func kills() throws {
        for name in ["push", "transfer"] {
            let own = try measurements(isQuick: false).filter { $0.first == name }
            #expect(own.count == 2 && own.count { $0.contains("--kills") } == 1)
        }
    }
}
