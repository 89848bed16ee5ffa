import EdgeTestSupport
import Foundation
import Glibc
import Launching
import LinuxSystem

/// A program that a test launches, with its output collected in a file.
struct Launched {
    /// The result of a program that ran.
    struct Report {
        var status: ExitStatus?
        var output: String
        var pid: pid_t
        var lines: [String] { output.split(separator: "\n").map(String.init) }
    }

    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    /// Runs a shell command to its end.
    static func shell(
        _ command: String, as identity: ProcessIdentity? = nil,
        _ adjust: (inout LaunchOrder) -> Void = { _ in }
    ) throws -> Report {
        try run(["/bin/sh", "-c", command], as: identity, adjust)
    }

    static func run(
        _ arguments: [String], as identity: ProcessIdentity? = nil,
        _ adjust: (inout LaunchOrder) -> Void = { _ in }
    ) throws -> Report {
        let directory = try TemporaryDirectory()
        chmod(directory.path, 0o777)
        var specification = LaunchSpecification(arguments: arguments)
        specification.output = directory.file("output")
        var order = LaunchOrder(specification, as: try identity ?? .own())
        adjust(&order)
        var launch = try Launch.begin(order)
        let outcome = try outcome(of: &launch)
        guard case .runs = outcome else { throw Failure(description: "\(outcome)") }
        let status = try exitStatus(of: launch.process)
        let text = try String(contentsOfFile: directory.file("output"), encoding: .utf8)
        return Report(status: status, output: text, pid: launch.process.pid)
    }

    /// Waits until it is known whether the program runs.
    static func outcome(of launch: inout Launch) throws -> Launch.Outcome {
        guard !Poll.wait(launch.reportDescriptor, for: .readable, timeoutMilliseconds: 30_000).isEmpty,
            let outcome = launch.outcome()
        else { throw Failure(description: "no outcome") }
        return outcome
    }

    /// Waits for the end of a process.
    static func exitStatus(of process: borrowing ProcessHandle) throws -> ExitStatus? {
        guard !Poll.wait(process.rawValue, for: .readable, timeoutMilliseconds: 30_000).isEmpty else {
            throw Failure(description: "process \(process.pid) has not ended")
        }
        return try process.exitStatus()
    }
}
