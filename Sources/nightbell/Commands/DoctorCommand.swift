import ArgumentParser
import Glibc
import LinuxSystem
import Nightbell
import Presentation
import StatusReports
import Suspension

struct DoctorCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor", abstract: "Checks what this machine supports, or whether a program may sleep.",
        discussion: """
            Tries the facilities, for example makes, freezes and removes a cgroup. With a process: looks at its threads \
            twice, without stopping it, and tells what they wait for, how often they run, and whether it may sleep as \
            it is. Ends with exit code 1 if something is missing, or the program must stay awake. With --json: one \
            object with an array of findings, each with a stable key.
            """)

    @OptionGroup var options: SupervisorOptions

    @Option(help: "With a process: the seconds between the two looks, 1 to 3600.")
    var seconds = 3

    @Argument(help: "The id of a process.")
    var process: Int32?

    func validate() throws {
        guard (1...3_600).contains(seconds) else { throw ValidationError("--seconds is 1 to 3600.") }
        guard let process, process <= 0 else { return }
        throw ValidationError("A process has a positive id.")
    }

    func run() throws {
        let findings = try process.map(program) ?? machine()
        let complete = findings.allSatisfy { $0.status != .missing }
        if options.json {
            emit(["complete": .bool(complete), "findings": .array(findings.map(\.json))])
        } else {
            let subject = findings.contains { $0.key == "sleep" } ? Finding.Subject.program : .machine
            emit(Report.findings(findings, about: subject, width: terminalWidth, paint: paint))
        }
        if !complete { throw ExitCode(1) }
    }

    private func machine() -> [Finding] { MachineFacts.gather().facts.map(Finding.init) + supervisor() }

    private func program(_ pid: Int32) throws -> [Finding] {
        try ProgramFindings.gather(pid, watching: .seconds(seconds))
            ?? [Finding("process", .missing, "there is no process \(pid), or it has ended")]
    }

    /// Whether a supervisor can be reached, and if not, why.
    private func supervisor() -> [Finding] {
        let path = options.socket ?? Client.Configuration.defaultSocketPath()
        do {
            var administration = try Administration(socketPath: path)
            let status = try administration.status()
            let reached = Finding(
                "supervisor", .ok,
                "version \(status.version), process \(status.processID), at \(path), suspends by \(status.suspension)"
            )
            let warnings = status.warnings.map { warning in
                Finding(
                    "state", .warning, warning,
                    remedy:
                        "Make the state directory writable for the supervisor; it retries by itself."
                )
            }
            return [reached, permissions(of: path)].compactMap(\.self) + warnings
                + MachineFindings.gather(status)
                + Self.machine(status)
        } catch {
            let unreached = Finding(
                "supervisor", .missing, "\(error) Looked \(places).", remedy: remedy(for: error))
            return [unreached, permissions(of: path)].compactMap(\.self) + MachineFindings.gather(nil)
        }
    }

    /// The sources of facts about the machine that clients need, and whether the machine wakes for
    /// keep-alives.
    private static func machine(_ status: SupervisorStatus) -> [Finding] {
        let sources = status.sources.map { source in
            source.isAvailable
                ? Finding(source.name, .ok, "is reported by nightbell-monitor")
                : Finding(
                    source.name, .warning, "is not known: \(source.reason)",
                    remedy:
                        "Clients go on without it. See nightbell status, and Reasons to wake in the documentation."
                )
        }
        guard !status.alarmProblem.isEmpty else { return sources }
        let alarm = Finding(
            "alarm", .warning,
            "the machine does not wake from its sleep for keep-alives: \(status.alarmProblem)",
            remedy:
                "Give nightbelld the capability (AmbientCapabilities=CAP_WAKE_ALARM), or do without: it runs them after."
        )
        return sources + [alarm]
    }

    /// The paths of the supervisor's socket, in search order, in words.
    private var places: String {
        if let socket = options.socket { return "only at \(socket), which --socket names" }
        if let socket = Environment.value("NIGHTBELL_SOCKET") {
            return "only at \(socket), which NIGHTBELL_SOCKET names"
        }
        let shared = "/run/nightbell/nightbell.sock"
        guard let directory = Environment.value("XDG_RUNTIME_DIR") else {
            return "only at \(shared): XDG_RUNTIME_DIR is not set, where a supervisor of your own would be"
        }
        return "at \(directory)/nightbell/nightbell.sock, then at \(shared)"
    }

    private func remedy(for error: NightbellError) -> String {
        switch error.errorNumber {
        case EACCES, EPERM:
            "Let the supervisor open its socket to you (socketMode), or run one of your own: nightbelld --user."
        case ECONNREFUSED:
            "The supervisor that listened there was killed. Start it again; it thaws what was left stopped."
        default:
            "Start one: systemctl start nightbelld, or nightbelld --user for yourself; or say where it is, with "
                + "--socket or NIGHTBELL_SOCKET."
        }
    }

    private func permissions(of path: String) -> Finding? {
        var status = stat()
        guard unsafe lstat(path, &status) == 0 else { return nil }
        let mode = String(status.st_mode & 0o7777, radix: 8)
        let facts = "\(path) has mode 0\(mode) and belongs to uid \(status.st_uid)"
        if status.st_mode & S_IFMT != S_IFSOCK {
            return Finding("socket", .missing, "\(path) is no socket", remedy: "Move it away.")
        }
        if unsafe access(path, W_OK) != 0 {
            return Finding(
                "socket", .missing, "\(facts): you may not connect",
                remedy: "Set socketMode in the supervisor's configuration, such as 0666.")
        }
        return Finding("socket", .ok, facts)
    }
}

extension Finding {
    init(_ fact: MachineFacts.Fact) {
        let status: Status =
            switch fact.status {
            case .ok: .ok
            case .warning: .warning
            case .missing: .missing
            }
        self.init(fact.key, status, fact.explanation, remedy: fact.remedy)
    }
}
