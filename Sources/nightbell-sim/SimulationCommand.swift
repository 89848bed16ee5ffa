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
            step all invariants are checked. A failure prints its seed; a seed gives the same result on every \
            machine.

            Exit status: 0 if all invariants held, with --fetch or --transfers all targets, or if with --mistakes each \
            was found; 1 if not; 64 for wrong arguments.
            """)

    @Option(name: .customLong("seeds"), help: "The number of worlds; 1000 by default.")
    var givenSeeds: UInt64?
    var seeds: UInt64 { givenSeeds ?? 1_000 }

    @Option(name: .customLong("first"), help: "The first world's seed; 0 by default.")
    var givenFirst: UInt64?
    var first: UInt64 { givenFirst ?? 0 }

    @Option(
        name: .customLong("steps"),
        help: "The number of steps of each world, 2000 by default; its end takes two more.")
    var givenSteps: Int?
    var steps: Int { givenSteps ?? 2_000 }

    @Option(help: "Run only the world of this seed.")
    var seed: UInt64?

    @Flag(help: "With --seed: print every step.")
    var trace = false

    @Option(
        name: .customLong("jobs"),
        help: "The number of parallel worlds; 2 by default, and at most one per processor.")
    var givenJobs = 2
    var jobs: Int { min(givenJobs, max(1, sysconf(CInt(_SC_NPROCESSORS_ONLN)))) }

    @Option(
        name: .customLong("failures"), help: "Stop after this number of failed worlds; 5 by default.")
    var givenFailures: Int?
    var failures: Int { givenFailures ?? 5 }

    @Flag(help: "Simulate the scheduler of fetches instead, for days of drawn habits.")
    var fetch = false

    @Flag(help: "Simulate the plan of transfers that can wait instead, over a drawn day.")
    var transfers = false

    @Option(
        name: .customLong("clients"),
        help: "The number of clients; 200 by default with --fetch, 20 with --transfers.")
    var givenClients: Int?

    @Option(
        name: .customLong("days"), help: "The number of days; 14 by default with --fetch, 1 with --transfers."
    )
    var givenDays: Int?

    @Flag(help: "Make each mistake in turn instead, and print the first world that finds it.")
    var mistakes = false

    @Flag(help: "Print one JSON object at the end, and nothing else.")
    var json = false

    @Option(help: "A mistake of the edge to make: \(Fault.allCases.map(\.rawValue).joined(separator: ", ")).")
    var fault: Fault?

    @Option(
        help: ArgumentHelp(
            "A mistake of the core to make (debug builds, and that of scripts/simulate).",
            valueName: Mutation.areCompiledIn ? Mutation.allCases.map(\.rawValue).joined(separator: "|") : nil
        ))
    var mutation: Mutation?

    func validate() throws {
        guard steps > 0, givenJobs > 0, seeds > 0, failures > 0 else {
            throw ValidationError("--steps, --seeds, --jobs and --failures take numbers from 1 up.")
        }
        guard !first.addingReportingOverflow(seeds - 1).overflow else {
            throw ValidationError("The last seed would exceed 64 bits.")
        }
        guard seed == nil || (givenSeeds == nil && givenFirst == nil) else {
            throw ValidationError("--seed is one world; --seeds and --first are about several.")
        }
        guard !trace || !json else { throw ValidationError("--trace and --json do not go together.") }
        guard !trace || seed != nil else { throw ValidationError("--trace goes with --seed.") }
        guard fetch || transfers || (givenClients == nil && givenDays == nil) else {
            throw ValidationError("--clients and --days go with --fetch and --transfers.")
        }
        let isAboutWorlds =
            givenSeeds != nil || givenFirst != nil || givenSteps != nil || givenFailures != nil || trace
            || mutation != nil || fault != nil
        guard !(fetch || transfers) || !(isAboutWorlds || fetch && transfers) else {
            throw ValidationError("--fetch and --transfers take --seed, --clients, --days and --json only.")
        }
        guard (1...10_000).contains(givenClients ?? 1) else {
            throw ValidationError("--clients takes a number from 1 to 10000.")
        }
        let fewestDays = fetch ? FetchWorld.firstCounted + 1 : 1
        guard (fewestDays...1_000).contains(givenDays ?? fewestDays) else {
            throw ValidationError("--days takes a number from \(fewestDays) to 1000.")
        }
        guard !mistakes || !(isAboutWorlds || seed != nil || fetch || transfers) else {
            throw ValidationError("--mistakes takes --jobs and --json only.")
        }
        guard mutation == nil && !mistakes || Mutation.areCompiledIn else {
            throw ValidationError(
                "--mutation and --mistakes need a build with mistakes of the core: a debug build, or that of scripts/simulate."
            )
        }
    }

    func run() async throws {
        if fetch {
            let report = FetchReport(seed: seed ?? 0, clients: givenClients ?? 200, days: givenDays ?? 14)
            try tell(json ? report.json.text : report.text)
            if !report.misses.isEmpty { throw ExitCode.failure }
            return
        }
        if transfers {
            let report = TransferReport(seed: seed ?? 0, clients: givenClients ?? 20, days: givenDays ?? 1)
            try tell(json ? report.json.text : report.text)
            if !report.misses.isEmpty { throw ExitCode.failure }
            return
        }
        if mistakes {
            let report = await MistakeReport.make(jobs: jobs)
            try tell(json ? report.json.text : report.text)
            if !report.missed.isEmpty { throw ExitCode.failure }
            return
        }
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

    /// Throws if the text cannot be written, because a run without its report must not succeed.
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
