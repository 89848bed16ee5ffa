import CFloors
import Glibc
import LinuxSystem
import Nightbell
import NightbellWire
import SwiftProtobuf

/// A client of a transfer run: it adds its downloads, sleeps or ends, and keeps the files when it is woken or
/// launched for them. All that it has to say are files in the run's directory of copies, because it may be
/// killed at any moment.
struct TransferClientMain {
    private let index: Int
    private let sessions: Int
    private let files: Int
    private let address: String
    private let supervisorSocket: String
    private let copies: String
    private let lifeline: String
    private let user: uid_t

    /// The arguments of a client.
    static func arguments(
        _ index: Int, _ settings: TransferRun.Settings, address: String, supervisorSocket: String,
        copies: String, lifeline: String
    ) -> [String] {
        [
            "\(index)", "\(settings.sessions)", "\(settings.files)", address, supervisorSocket, copies,
            lifeline, "\(TransferRun.user)",
        ]
    }

    init(_ arguments: [String]) throws(LoadError) {
        guard arguments.count == 8, let index = Int(arguments[0]), let sessions = Int(arguments[1]),
            let files = Int(arguments[2]), let user = uid_t(arguments[7])
        else { throw .missing("arguments") }
        self.index = index
        self.sessions = sessions
        self.files = files
        address = arguments[3]
        supervisorSocket = arguments[4]
        copies = arguments[5]
        lifeline = arguments[6]
        self.user = user
    }

    private func path(_ name: String) -> String { "\(copies)/\(name).\(index)" }

    func run() throws {
        if geteuid() != user {
            guard setgroups(0, nil) == 0, setgid(user) == 0, setuid(user) == 0
            else { throw LoadError(failed: "becoming uid \(user)") }
        }
        // It is the supervisor's child, and stopped or frozen it would notice nothing.
        let end = open(lifeline, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
        guard end >= 0, cfloors_die_with_pipe(end) != 0 else {
            throw LoadError.missing("the harness has ended")
        }
        let isFirst = access(path("added"), F_OK) != 0
        if isFirst { try recordLaunchCommand() }
        var handlers = Client.Handlers()
        handlers.wake = { wake in
            if !wake.finishedTransfers.isEmpty { note("wakes") }
        }
        let client = try Client(
            .init(identifier: "load.transfer.\(index)", modes: [], socketPath: supervisorSocket),
            handlers: handlers)
        let session = try TransferSession(client, identifier: "s\(index)", handlers: transferHandlers)
        if isFirst {
            for file in stride(from: index, to: files, by: sessions) {
                try session.download("\(address)/f\(file)", name: "f\(file)")
            }
            note("added")
            // Every other one has no process meanwhile.
            if index % 2 == 1 { try client.hibernate() }
            try client.enterBackground()
        }
        while true { pause() }
    }

    private var transferHandlers: TransferSession.Handlers {
        var handlers = TransferSession.Handlers()
        handlers.finished = { result in
            guard result.failure == nil else { return note("failed") }
            do throws(NightbellError) {
                try result.keep(as: "\(copies)/\(result.task.name)")
            } catch {
                note(error.errorNumber == EEXIST ? "repeated" : "failed")
            }
        }
        handlers.sessionFinished = { note("done") }
        return handlers
    }

    /// Appends a byte to a file: a count that outlives the process.
    private func note(_ name: String) {
        let file = open(path(name), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o644)
        guard file >= 0 else { return logError("\(path(name)): \(errno)") }
        _ = write(file, "+", 1)
        close(file)
    }

    /// Tells the client library how to launch this client again, as `nightbell run` would.
    private func recordLaunchCommand() throws {
        let specification = WireLaunchSpecification.with {
            $0.arguments = [
                CommandLine.arguments[0], ProcessRole.transferClient.rawValue, "0", "\(index)", "\(sessions)",
                "\(files)", address, supervisorSocket, copies, lifeline, "\(user)",
            ]
            $0.directory = "/"
        }
        let bytes: [UInt8] = try specification.serializedBytes()
        setenv("NIGHTBELL_LAUNCH", base64(bytes), 1)
    }
}
