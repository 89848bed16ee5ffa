import ArgumentParser
import Glibc
import NightbellCore
import Presentation
import Simulation

@main
struct SimulationCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nightbell-sim",
        abstract: "Runs Nightbell's real core in simulated worlds, each made from a seed.",
        discussion: """
            Every world has a virtual clock, clients of every kind, peers, a kernel and administrators. After each \
            step everything that must hold is checked. A failure prints its seed; the same seed does the same \
            again, everywhere.

            Exit status: 0 if everything held, 1 if something did not, 64 for wrong arguments.
            """)

    @Option(name: .customLong("seeds"), help: "How many worlds; 1000 by default.")
    var givenSeeds: UInt64?
    var seeds: UInt64 { givenSeeds ?? 1_000 }

    @Option(name: .customLong("first"), help: "The first world's seed; 0 by default.")
    var givenFirst: UInt64?
    var first: UInt64 { givenFirst ?? 0 }

    @Option(help: "How many steps each world lives; it ends in two more.")
    var steps = 2_000

    @Option(help: "Only the world of this seed.")
    var seed: UInt64?

    @Flag(help: "With --seed: tell step by step what happens.")
    var trace = false

    @Option(
        name: .customLong("jobs"),
        help: "How many worlds at a time; 2 by default, and no more than there are processors.")
    var givenJobs = 2
    var jobs: Int { min(givenJobs, max(1, sysconf(CInt(_SC_NPROCESSORS_ONLN)))) }

    @Option(help: "Stop when so many worlds have failed.")
    var failures = 5

    @Flag(help: "Print one JSON object at the end, and nothing else.")
    var json = false

    @Option(help: "A mistake of the edge to make: \(Fault.allCases.map(\.rawValue).joined(separator: ", ")).")
    var fault: Fault?

    @Option(
        help: ArgumentHelp(
            "A mistake of the core to make (debug builds only).",
            valueName: Mutation.areCompiledIn ? Mutation.allCases.map(\.rawValue).joined(separator: "|") : nil
        ))
    var mutation: Mutation?

    func validate() throws {
        guard steps > 0, givenJobs > 0, seeds > 0, failures > 0 else {
            throw ValidationError("--steps, --seeds, --jobs and --failures take numbers from 1 up.")
        }
        guard !first.addingReportingOverflow(seeds - 1).overflow else {
            throw ValidationError("There are no seeds that large.")
        }
        guard seed == nil || (givenSeeds == nil && givenFirst == nil) else {
            throw ValidationError("--seed is one world; --seeds and --first are about several.")
        }
        guard !trace || !json else { throw ValidationError("--trace and --json do not go together.") }
        guard !trace || seed != nil else { throw ValidationError("--trace goes with --seed.") }
        guard mutation == nil || Mutation.areCompiledIn else {
            throw ValidationError("This is a release build: its core cannot be told to be wrong.")
        }
    }

    func run() async throws {
        let start = ContinuousClock.now
        let tally: Tally
        if let seed {
            tally = single(seed)
        } else {
            tally = await Worlds(command: self).run()
        }
        let report = Report(tally: tally, elapsed: start.duration(to: .now), command: self)
        try tell(json ? report.json.text : report.text)
        if !tally.failures.isEmpty { throw ExitCode.failure }
    }

    /// What cannot be told makes no success.
    private func tell(_ text: String) throws {
        var isTold = fflush(nil) == 0
        var bytes = Array("\(text)\n".utf8)[...]
        while isTold, !bytes.isEmpty {
            let written = unsafe bytes.withUnsafeBytes {
                unsafe write(STDOUT_FILENO, $0.baseAddress, $0.count)
            }
            if written < 0, errno == EINTR { continue }
            isTold = written > 0
            bytes = bytes.dropFirst(max(0, written))
        }
        guard isTold else { throw OutputError(code: errno) }
    }

    private struct OutputError: Error, CustomStringConvertible {
        let code: CInt
        var description: String { unsafe "standard output: \(String(cString: strerror(code)))" }
    }

    private func single(_ seed: UInt64) -> Tally {
        var tally = Tally()
        let narrator: ((String) -> Void)? = trace ? { print($0) } : nil
        tally.add(Run(seed: seed, steps: steps, mutation: mutation, fault: fault, narrator: narrator))
        return tally
    }
}

extension Fault: ExpressibleByArgument {}
extension Mutation: ExpressibleByArgument {}
