import ArgumentParser
import Glibc
import LinuxSystem
import Nightbell
import Presentation

struct KillCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "kill", abstract: "Sends a signal to a client, and wakes it for that.",
        discussion: """
            A process that is frozen gets signals other than SIGKILL only once it runs again. The signal goes to the \
            client's process, for which you need the right to send it one.
            """)

    @OptionGroup var target: Target

    @Argument(help: "A signal's name or number, such as HUP or 1.")
    var signal = SignalName.termination

    func run() throws {
        try target.act("kill") { administration, client throws(NightbellError) in
            let info = try administration.show(client)
            // The pid is the client's once it is open: it was not reused before.
            guard info.processID > 0, let process = try? ProcessHandle(opening: info.processID),
                try administration.show(client).processID == info.processID
            else { throw NightbellError(.processGone, "it has no process") }
            try Self.check(process)
            let isAsleep = Self.isAsleep(info)
            if isAsleep, signal.number != SIGKILL { try administration.wake(client) }
            guard ProgramSignal.send(signal.number, to: info.processID, toFirstThread: isAsleep) else {
                throw Self.error(errno)
            }
            // It may have fallen asleep in between, before it got the signal; or it has ended by it.
            if signal.number != SIGKILL, let now = try? administration.show(client), Self.isAsleep(now) {
                try administration.wake(client)
            }
        }
    }

    private static func isAsleep(_ client: ClientInfo) -> Bool {
        client.state == .suspended || client.state == .suspending
    }

    /// It is not woken in vain.
    private static func check(_ process: borrowing ProcessHandle) throws(NightbellError) {
        do throws(SystemError) {
            try process.signal(0)
        } catch {
            throw Self.error(error.code)
        }
    }

    private static func error(_ code: CInt) -> NightbellError {
        code == EPERM
            ? NightbellError(.permissionDenied, "you may not send signals to its process")
            : NightbellError(.processGone, "its process has ended")
    }
}

/// A signal, by its name with or without SIG, or its number.
struct SignalName: ExpressibleByArgument {
    let number: CInt

    static var termination: SignalName { SignalName(number: SIGTERM) }

    private init(number: CInt) { self.number = number }

    init?(argument: String) {
        let name = argument.uppercased()
        let known = Self.names[name.hasPrefix("SIG") ? String(name.dropFirst(3)) : name]
        guard let number = known ?? CInt(argument), (1...64).contains(number) else { return nil }
        self.init(number: number)
    }

    var defaultValueDescription: String { "TERM" }

    private static let names = [
        "HUP": SIGHUP, "INT": SIGINT, "QUIT": SIGQUIT, "ABRT": SIGABRT, "KILL": SIGKILL, "USR1": SIGUSR1,
        "USR2": SIGUSR2, "PIPE": SIGPIPE, "ALRM": SIGALRM, "TERM": SIGTERM, "CHLD": SIGCHLD, "CONT": SIGCONT,
        "STOP": SIGSTOP, "TSTP": SIGTSTP, "TTIN": SIGTTIN, "TTOU": SIGTTOU, "URG": SIGURG,
        "WINCH": SIGWINCH, "IO": SIGIO, "PWR": SIGPWR,
    ]
}
