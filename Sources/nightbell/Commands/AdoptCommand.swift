import ArgumentParser
import Glibc
import Identifiers
import LinuxSystem
import Manifests
import Nightbell
import Presentation
import Suspension
import SystemdUnits

struct AdoptCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "adopt", abstract: "Suspends a program that runs already while it waits.",
        discussion: """
            The program need not know Nightbell, and sleeps as with nightbell run --unmodified: with all of its processes, \
            until something comes that one of its threads waits for. It is a process with its descendants, all processes \
            of a cgroup, or a service or scope of systemd, which systemd freezes and thaws then.

            This command looks at it from outside and stays for as long. Ctrl-C, or the end of this command in any other \
            way, gives the program back, awake. Signals to a sleeping program arrive when it runs again; nightbell kill \
            wakes it for them.

            Only root adopts the programs of other users, or those in a system that restricts tracing \
            (kernel.yama.ptrace_scope). A single process of a service, and any that the engine of a container manages, are \
            refused. Units are those of the system for root, and of the user's own service manager for others.
            """)

    @Argument(help: ArgumentHelp("The process.", valueName: "pid"))
    var process: Int32?

    @Option(
        help: ArgumentHelp(
            "A cgroup that nothing else manages, with all of its processes.", valueName: "path"))
    var cgroup: String?

    @Option(
        help: ArgumentHelp("A service or scope of systemd, with all of its processes.", valueName: "name"))
    var unit: String?

    @Option(
        help: ArgumentHelp(
            "With --unit: thaw it instead, whose cgroup has this directory.", valueName: "directory",
            visibility: .hidden))
    var thaw: String?

    @Option(
        help: "The identifier to register; without it, the program's name and pid, or the unit's name.")
    var identifier: String?

    @Option(help: ArgumentHelp("The supervisor's control socket.", valueName: "path"))
    var socket: String?

    @OptionGroup(title: "How it sleeps")
    var sleep: SleepOptions

    func validate() throws {
        try validateSocketPath(socket)
        guard [process != nil, cgroup != nil, unit != nil].count(where: { $0 }) == 1 else {
            throw ValidationError("Give a pid, --cgroup and a path, or --unit and a name")
        }
        guard thaw == nil || unit != nil else { throw ValidationError("--thaw goes with --unit") }
        guard process.map({ $0 > 0 }) ?? true else { throw ValidationError("A pid is a positive number") }
        guard identifier.map(IdentifierRule.permits) ?? true else {
            throw ValidationError(
                "'\(printable(identifier ?? ""))' is no identifier: \(IdentifierRule.text)"
            )
        }
    }

    func run() throws {
        if let unit, let thaw { return SystemdUnit.thaw(unit, directory: thaw) }
        do {
            if let unit { throw ExitCode(try adoptUnit(unit)) }
            var adoption = try find()
            var code = try adopt(adoption)
            // A cgroup goes on without its first process.
            while cgroup != nil, adoption.process.hasExited, let next = try rest() {
                adoption = next
                code = try adopt(next)
            }
            throw ExitCode(code)
        } catch let refusal as AdoptionRefusal {
            complain("\(refusal)")
            throw ExitCode(refusal.exitCode)
        } catch let failure as ProgramGroup.Failure {
            complain("it cannot be put to sleep: \(failure.reason)")
            throw ExitCode(1)
        } catch let error as NightbellError {
            complain(error.description)
            throw ExitCode(error.exitCode)
        } catch let error as SystemError {
            complain("it cannot be looked at: \(error)")
            throw ExitCode(1)
        }
    }

    private func find() throws(AdoptionRefusal) -> Adoption {
        if let process { return try Adoption(process: process) }
        return try Adoption(cgroup: cgroup ?? "")
    }

    func adopt(_ adoption: Adoption) throws -> Int32 {
        let name = ProcFS.name(adoption.pid) ?? "process"
        var options = UnmodifiedProgram.Options(
            identifier: identifier ?? Self.identifier(adoption.unit?.name ?? "\(name).\(adoption.pid)"),
            socketPath: socket ?? Client.Configuration.defaultSocketPath())
        options.sleep = sleep.values
        let program = try UnmodifiedProgram.adopt(options, adoption)
        guard program.suspensionMethod != "none" else { throw AdoptionRefusal.neverSuspended }
        guard adoption.unit == nil || program.suspensionMethod == "systemd" else {
            throw AdoptionRefusal.oldSupervisor
        }
        emit([
            "\(printable(name)), pid \(adoption.pid), sleeps while it waits, as \(options.identifier); Ctrl-C gives it back"
        ])
        return program.run(printable(name))
    }

    /// The rest of the cgroup after the end of its first process; nil: there is none. The supervisor returns
    /// the processes to it.
    private func rest() throws(AdoptionRefusal) -> Adoption? {
        let end = RunningClock.now() + Self.patience
        while true {
            do throws(AdoptionRefusal) {
                return try find()
            } catch {
                switch error {
                case .noProcesses where !Adoption.isPopulated(cgroup ?? ""): return nil
                case .noProcesses, .client: guard RunningClock.now() < end else { throw error }
                default: throw error
                }
            }
            _ = poll(nil, 0, 10)
        }
    }

    /// In nanoseconds.
    private static let patience: Int64 = 5_000_000_000

    /// The name with other characters replaced.
    private static func identifier(_ name: String) -> String {
        String(name.prefix(128).map { IdentifierRule.permits(String($0)) ? $0 : "_" })
    }
}
