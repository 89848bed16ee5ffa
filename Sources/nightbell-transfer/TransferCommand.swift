import ArgumentParser
import CLinux
import EventHandlers
import Glibc
import LinuxSystem
import ProcessPrivileges
import TransferEngine
import TransferModel

@main
struct TransferCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nightbell-transfer",
        abstract: "Downloads and uploads files for a user's clients, also while they sleep or do not run.",
        discussion: """
            It listens on a socket (SOCK_SEQPACKET), with the messages of transfer.proto, and accepts its own user and \
            root. It ends when it has been idle; all that is unfinished is continued by the next one with the same \
            directory. Proxies are those of the environment (http_proxy, https_proxy, no_proxy), unless a task names one.

            Exit codes: 0 after the idle time, or SIGTERM; 1 SIGTERM with --supervised, and there is something left to do; 64 the command line is wrong; 70 libcurl cannot be used; 71 the \
            system refused what is needed; 74 the store failed; 75 another process has the directory; 77 it cannot become \
            the given user, or root has given none.
            """)

    @Option(
        help: ArgumentHelp(
            "The socket to listen on. Default: descriptor 3, which listens already.", valueName: "path"))
    var socket: String?

    @Option(
        help: ArgumentHelp(
            "The directory of the store and the files, for this user alone.", valueName: "path"))
    var directory: String

    @Option(
        help: ArgumentHelp(
            "Become this user, as root. Root itself transfers nothing.", valueName: "name or number"))
    var user: String?

    @Option(help: ArgumentHelp("Transfers that run at the same time.", valueName: "number"))
    var parallel = 16

    @Option(help: ArgumentHelp("Of those, with the same host.", valueName: "number"))
    var parallelPerHost = 8

    @Option(help: ArgumentHelp("Bytes of all files, those of unfinished tasks included.", valueName: "bytes"))
    var diskBytes: Int64 = 16 << 30

    @Option(help: ArgumentHelp("Tasks that are not released.", valueName: "number"))
    var tasks = 10_000

    @Option(
        help: ArgumentHelp("End after this time with nothing to do and no connection.", valueName: "seconds"))
    var idle: Int64 = 30

    @Option(help: ArgumentHelp("Give up tasks that are not finished after this time.", valueName: "seconds"))
    var lifetime: Int64 = 7 * 86_400

    @Option(
        help: ArgumentHelp(
            "Remove sessions that have had neither a connection nor an end to tell for this time, if no task runs or waits.",
            valueName: "seconds"))
    var orphans: Int64 = 7 * 86_400

    @Option(
        help: ArgumentHelp(
            "An attempt fails when no byte arrives for so long; uploads are refused when a file to send cannot be read for so long.",
            valueName: "seconds"))
    var stall = 60

    @Option(help: ArgumentHelp("The delay after a first failure, which doubles.", valueName: "milliseconds"))
    var firstDelay: Int64 = 1_000

    @Option(help: ArgumentHelp("The longest delay between attempts.", valueName: "milliseconds"))
    var longestDelay: Int64 = 600_000

    @Option(
        help: ArgumentHelp(
            "A file with certificates of authorities, in place of the system's.", valueName: "path"))
    var authorities: String?

    @Flag(
        help: ArgumentHelp(
            "A supervisor has started it: descriptor 3 is the connection to it, and descriptor 4 listens."))
    var supervised = false

    @Flag(help: "Be killed when the thread that started it ends.")
    var endsWithParent = false

    func validate() throws {
        let numbers = [
            ("--parallel", Int64(parallel)), ("--parallel-per-host", Int64(parallelPerHost)),
            ("--disk-bytes", diskBytes), ("--tasks", Int64(tasks)), ("--idle", idle),
            ("--lifetime", lifetime),
            ("--orphans", orphans), ("--stall", Int64(stall)), ("--first-delay", firstDelay),
            ("--longest-delay", longestDelay),
        ]
        for (name, number) in numbers where !(1...(1 << 50)).contains(number) {
            throw ValidationError("\(name) takes a number from 1 on")
        }
        guard !supervised || socket == nil else {
            throw ValidationError("--socket is not for --supervised")
        }
        let most = TransferQueue.Limits.mostParallel
        guard parallel <= most else { throw ValidationError("--parallel takes at most \(most)") }
    }

    private var engineConfiguration: TransferConfiguration {
        var configuration = TransferConfiguration(directory: directory)
        configuration.limits = TransferQueue.Limits(
            parallel: parallel, parallelPerHost: parallelPerHost, diskBytes: diskBytes, tasks: tasks)
        configuration.retry = RetryPolicy(first: firstDelay * 1_000_000, longest: longestDelay * 1_000_000)
        configuration.lifetime = lifetime
        configuration.orphanLifetime = orphans
        configuration.idleTime = idle
        configuration.stallTime = stall
        configuration.authorities = authorities
        return configuration
    }

    func run() throws {
        do throws(SystemError) {
            if let user { try Privileges.become(user) }
            guard geteuid() != 0 else {
                throw SystemError(code: EPERM, call: "running as root, without --user")
            }
            // Connections, files and clients; memory for libcurl's buffers.
            try Privileges.confine(descriptors: 2_048, growth: 512 * 1024 * 1024)
            if endsWithParent { try Privileges.endWithParent() }
        } catch {
            throw Self.failure(EX_NOPERM, "\(error)")
        }
        let isDone: Bool
        do throws(TransferError) {
            let listener = try self.listener()
            let signals = try Self.signals()
            let loop = try Self.loop()
            let engine = try TransferEngine(loop, engineConfiguration)
            let supervisor =
                supervised ? try SupervisorLink(loop, engine, try Self.inheritedSocket(3)) : nil
            let server = try TransferServer(
                loop, engine, listener: listener, supervisor: supervisor, signals: signals.rawValue)
            isDone = try server.run()
            withExtendedLifetime(signals) {}
        } catch {
            throw Self.failure(error.exitCode, "\(error)")
        }
        // The supervisor starts another one.
        if supervised, !isDone { throw ExitCode(1) }
    }

    private func listener() throws(TransferError) -> SeqPacketSocket {
        do throws(SystemError) {
            if let socket { return try SeqPacketSocket.listen(path: socket, mode: 0o600) }
        } catch {
            throw .system(error)
        }
        return try Self.inheritedSocket(supervised ? 4 : 3)
    }

    private static func inheritedSocket(_ descriptor: CInt) throws(TransferError) -> SeqPacketSocket {
        do throws(SystemError) {
            _ = try systemCall("descriptor \(descriptor)") { clinux_set_close_on_exec(descriptor, 1) }
            return SeqPacketSocket(adopting: OwnedDescriptor(adopting: descriptor))
        } catch {
            throw .system(error)
        }
    }

    private static func signals() throws(TransferError) -> SignalDescriptor {
        do throws(SystemError) {
            return try SignalDescriptor([SIGTERM, SIGINT])
        } catch {
            throw .system(error)
        }
    }

    private static func loop() throws(TransferError) -> HandlerLoop {
        do throws(HandlerError) {
            return try HandlerLoop()
        } catch {
            throw .handlers(error)
        }
    }

    private static func failure(_ code: Int32, _ text: String) -> ExitCode {
        let line = Array("nightbell-transfer: \(text)\n".utf8)
        _ = unsafe write(STDERR_FILENO, line, line.count)
        return ExitCode(code)
    }
}

extension TransferError {
    fileprivate var exitCode: Int32 {
        switch self {
        case .handlers, .loop, .system: EX_OSERR
        case .store: EX_IOERR
        case .inUse: EX_TEMPFAIL
        case .curl: EX_SOFTWARE
        }
    }
}
