import Glibc
import SIPKit

/// SIPp as the caller: the scenario in `scripts/sipp/caller.xml`, called users from a file.
@MainActor
final class SIPp {
    let process: ChildProcess
    private let statistics: String
    static let program = "/usr/bin/sipp"

    struct Settings {
        var scenario: String
        var server: SIPAddress
        var domain: String
        var transport: SIPTransport
        var users: [String]
        var calls: Int
        var rate: Double
        var seed: UInt64
    }

    init(_ settings: Settings, directory: String) throws {
        guard access(Self.program, X_OK) == 0 else {
            throw DemoError.missing("SIPp is not installed: apt-get install sip-tester")
        }
        guard access(settings.scenario, R_OK) == 0 else {
            throw DemoError.missing("\(settings.scenario) is missing: say where it is with --scenario")
        }
        var random = SeededGenerator(seed: settings.seed)
        let called = (0..<settings.calls).map { _ in
            settings.users[Int.random(in: settings.users.indices, using: &random)]
        }
        let file = "\(directory)/called.csv"
        try write("SEQUENTIAL\n" + called.map { "\($0);\(settings.domain)\n" }.joined(), to: file)
        statistics = "\(directory)/sipp.csv"
        process = try ChildProcess(
            "sipp",
            [
                Self.program, settings.server.description, "-sf", settings.scenario, "-inf", file,
                "-m", String(settings.calls), "-r", String(Int((settings.rate * 10).rounded())), "-rp",
                "10000",
                "-t", settings.transport == .tcp ? "t1" : "u1", "-i", "127.0.0.1", "-p",
                String(try freePort()),
                "-timeout", "300", "-timeout_error", "-recv_timeout", "20000", "-nostdin",
                "-trace_stat", "-stf", statistics, "-fd", "1", "-trace_err", "-error_file",
                "\(directory)/sipp-errors.log",
            ],
            environment: ["TERM": "dumb"], log: "\(directory)/sipp.log")
    }

    /// SIPp's report of its progress. `answered` counts calls that also ended properly.
    var counts: CallCounts {
        let lines = contents(of: statistics).split(separator: "\n")
        guard let header = lines.first, let last = lines.dropFirst().last else { return CallCounts() }
        let names = header.split(separator: ";", omittingEmptySubsequences: false)
        let values = last.split(separator: ";", omittingEmptySubsequences: false)
        func value(_ name: String) -> Int {
            guard let column = names.firstIndex(where: { $0 == name }), column < values.count else {
                return 0
            }
            return Int(values[column]) ?? 0
        }
        var counts = CallCounts()
        counts.placed = value("TotalCallCreated")
        counts.endedProperly = value("SuccessfulCall(C)")
        counts.answered = counts.endedProperly
        counts.noAnswer = value("FailedCall(C)")
        return counts
    }
}
