import CTestSupport
import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// How the next supervisor treats declared clients: those that still run, and those that were quit.
@Suite(.serialized, .timeLimit(.minutes(40))) struct DeclaredRestartTests {
    private let name = "org.example.phone"
    private let manifests: TemporaryDirectory
    private let state: TemporaryDirectory
    private let place: TemporaryDirectory
    private let daemons = Daemons()

    /// Each daemon that ends removes its directory, while the next one serves in it.
    private final class Daemons {
        var all: [DaemonProcess] = []
    }

    init() throws {
        manifests = try TemporaryDirectory()
        state = try TemporaryDirectory()
        place = try TemporaryDirectory()
    }

    private var actor: TestClient {
        get throws { try TestClient(name, socketPath: place.path + "/nightbell.sock") }
    }

    private func declare(
        _ actor: TestClient, arguments: [String] = [], as identifier: String? = nil
    ) throws {
        let environment = actor.specification.environment.map { "  \($0.key): '\($0.value)'" }
        let identifier = identifier ?? name
        let text = """
            identifier: \(identifier)
            command: [\(([actor.program] + arguments).joined(separator: ", "))]
            environment:
            \(environment.joined(separator: "\n"))
            """
        let path = manifests.file("\(identifier).yaml")
        try Data(text.utf8).write(to: URL(fileURLWithPath: path))
        chmod(path, 0o644)
    }

    private func start(_ flags: String = "") throws -> DaemonProcess {
        let daemon = try DaemonProcess(
            suspension: "none", directory: place.path, before: "umask 0",
            "--set manifestDirectory=\(manifests.path) --set stateDirectory=\(state.path) \(flags)")
        daemons.all.append(daemon)
        return daemon
    }

    private func stop(_ daemon: DaemonProcess, _ signal: Int32 = SIGTERM) throws {
        let handle = try daemon.child.handle()
        kill(daemon.child.pid, signal)
        #expect(!Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 20_000).isEmpty)
    }

    private func isServed(_ pid: pid_t, by daemon: DaemonProcess) throws -> Bool {
        try eventually(within: 20_000) {
            let info = try WireClient(path: daemon.socketPath).info(of: self.name)
            return info?.processID == UInt32(pid)
        }
    }

    private var runs: String { place.file("runs") }

    /// Declares a program that does not say Hello, and does not end when it is asked to.
    ///
    /// - Returns: a file that it makes then.
    private func declareSilentProgram(as identifier: String? = nil) throws -> String {
        let asked = place.file("asked")
        let actor = try actor
        actor.program = "/bin/sh"
        let script = place.file("silent.sh")
        let text = "trap 'echo > \(asked)' TERM; echo $$ > \(runs).new; mv \(runs).new \(runs)"
        try Data("\(text); while :; do sleep 1000 & wait; done".utf8).write(to: URL(fileURLWithPath: script))
        try declare(actor, arguments: [script], as: identifier)
        return asked
    }

    private func silentProgram() throws -> ProcessHandle {
        let runs = runs
        #expect(eventually { access(runs, R_OK) == 0 })
        return try ProcessHandle(
            opening: try #require(pid_t(try String(contentsOfFile: runs, encoding: .utf8).dropLast())))
    }

    /// The worker that completes a stop has no connection to the clients that the first one has told.
    @Test func aRunningClientIsNotLaunchedAgainThoughTheWorkerDiesWhileItStops() throws {
        let actor = try actor
        try declare(actor)
        let asked = try declareSilentProgram(as: "org.example.silent")
        let first = try start()
        let process = try actor.returns("voip socket=\(first.socketPath)")
        _ = try silentProgram()
        let worker = try ProcessHandle(opening: try first.worker())
        let keeper = try first.child.handle()
        kill(first.child.pid, SIGTERM)
        #expect(eventually { access(asked, F_OK) == 0 })
        // It connects to the next one only.
        kill(process.pid, SIGSTOP)
        try worker.signal(SIGKILL)
        #expect(!Poll.wait(keeper.rawValue, for: .readable, timeoutMilliseconds: 20_000).isEmpty)
        let second = try start()
        #expect(actor.staysAway(milliseconds: 2_000))
        kill(process.pid, SIGCONT)
        #expect(try isServed(process.pid, by: second))
        try second.end(process)
    }

    /// Another worker completes a stop that the first one did not survive.
    @Test func aSilentProgramEndsThoughTheWorkerDiesWhileItStops() throws {
        let asked = try declareSilentProgram()
        let daemon = try start()
        let silent = try silentProgram()
        let worker = try ProcessHandle(opening: try daemon.worker())
        let keeper = try daemon.child.handle()
        kill(daemon.child.pid, SIGTERM)
        #expect(eventually { access(asked, F_OK) == 0 })
        try worker.signal(SIGKILL)
        #expect(!Poll.wait(keeper.rawValue, for: .readable, timeoutMilliseconds: 20_000).isEmpty)
        let hasEnded = !Poll.wait(silent.rawValue, for: .readable, timeoutMilliseconds: 5_000).isEmpty
        #expect(hasEnded, "it outlives the supervisor")
        if !hasEnded { try silent.signal(SIGKILL) }
    }

    @Test func aRunningClientReconnectsAndIsNotLaunchedAgain() throws {
        let actor = try actor
        try declare(actor)
        let first = try start()
        let process = try actor.returns("voip socket=\(first.socketPath)")
        try stop(first)
        let second = try start()
        #expect(try isServed(process.pid, by: second))
        // For longer than the supervisor waits for it.
        #expect(actor.staysAway(milliseconds: 6_000))
        #expect(try WireClient(path: second.socketPath).info(of: name)?.counters["launches"] == 0)
    }

    @Test func aClientThatDoesNotReconnectIsLaunchedAfterAWhile() throws {
        let actor = try actor
        try declare(actor)
        let first = try start()
        let process = try actor.returns("voip no-reconnect socket=\(first.socketPath)")
        defer { kill(process.pid, SIGKILL) }
        try stop(first)
        let second = try start()
        #expect(actor.staysAway(milliseconds: 2_000))
        // The waiting worker is replaced: the next one waits on.
        try second.killWorker()
        let other = try actor.returns("voip")
        #expect(try isServed(other.pid, by: second))
        kill(other.pid, SIGTERM)
    }

    @Test func aClientWithoutProcessIsLaunchedAtOnce() throws {
        let actor = try actor
        try declare(actor)
        let first = try start()
        let process = try actor.returns("voip socket=\(first.socketPath)")
        try stop(first)
        kill(process.pid, SIGKILL)
        #expect(eventually { ProcFS.state(process.pid).map { $0 == "Z" } ?? true })
        let second = try start()
        #expect(!actor.staysAway(milliseconds: 4_000))
        try second.end(actor.returns("voip"))
    }

    @Test func eachWorkerSaysWhyAClientCannotBeLaunched() throws {
        let actor = try actor
        let program = actor.program
        actor.program = place.file("program")
        try declare(actor)
        let daemon = try start()
        func warnings() throws -> [String] {
            try WireClient(path: daemon.socketPath).info(of: name)?.warnings ?? []
        }
        // The next attempt begins after ten seconds.
        #expect(
            try eventually(within: 20_000) {
                let info = try WireClient(path: daemon.socketPath).info(of: name)
                return info?.state == .dormant && info?.warnings.isEmpty == false
            })
        let before = try warnings()
        #expect(before.count == 1 && before[0].contains("\(actor.program): No such file"), "\(before)")
        for _ in 0..<2 {
            try daemon.killWorker()
            #expect(try warnings() == before)
        }
        // Not once it runs.
        #expect(symlink(program, actor.program) == 0)
        guard
            case .done = try WireClient(path: daemon.socketPath).ask(
                .launchClient(.with { $0.identifier = name }))
        else { throw TestFailure("not launched") }
        let process = try actor.returns("voip socket=\(daemon.socketPath)")
        #expect(try isServed(process.pid, by: daemon))
        try daemon.killWorker()
        #expect(try eventually { try self.isServed(process.pid, by: daemon) })
        #expect(try warnings().allSatisfy { !$0.contains("No such file") })
        try daemon.end(process)
    }

    @Test func aLaunchWithoutHelloEndsWithTheSupervisor() throws {
        let actor = try actor
        try declare(actor)
        let first = try start()
        let process = try actor.appears()
        try stop(first)
        #expect(eventually { ProcFS.state(process.pid).map { $0 == "Z" } ?? true })
        // The next one has no client to wait for.
        let second = try start()
        #expect(!actor.staysAway(milliseconds: 4_000))
        try second.end(actor.returns("voip"))
    }

    /// Another user was the first to use it, and may not have it again.
    @Test func aDeclaredClientGetsItsIdentifier() throws {
        chmod(place.path, 0o755)
        let first = try start()
        let (path, name) = (first.socketPath, name)
        try OwnThread {
            guard ctest_become(65_534) == 0 else { throw TestFailure("cannot become another user") }
            try WireClient(path: path).hello(name)
        }.join()
        try stop(first)
        let actor = try actor
        try declare(actor)
        let second = try start()
        let process = try actor.returns("voip socket=\(path)")
        let refusesOthers = {
            try OwnThread {
                guard ctest_become(65_534) == 0 else { throw TestFailure("cannot become another user") }
                let other = try WireClient(path: path)
                try other.send(.hello(.with { ($0.version, $0.identifier) = (1, name) }), request: 1)
                return try other.end()?.code == .identifierOfOtherUser
            }.join()
        }
        #expect(try refusesOthers())
        // Nor while it has no process, nor once it is given up.
        _ = try WireClient(path: path).ask(.quitClient(.with { $0.identifier = name }))
        #expect(eventually { ProcFS.state(process.pid).map { $0 == "Z" } ?? true })
        #expect(try refusesOthers())
        let isGivenUp = try eventually {
            if case .done = try WireClient(path: path).ask(.forgetClient(.with { $0.identifier = name })) {
                true
            } else {
                false
            }
        }
        #expect(isGivenUp)
        #expect(try refusesOthers())
        try stop(second)
    }

    /// A start of the supervisor does not undo a user's quit, a start of the machine does.
    @Test func aClientThatWasQuitIsLaunchedWhenTheMachineStarts() throws {
        let actor = try actor
        try declare(actor)
        let first = try start()
        let process = try actor.returns("voip socket=\(first.socketPath)")
        #expect(try WireClient(path: first.socketPath).status().notRunning.isEmpty)
        _ = try WireClient(path: first.socketPath).ask(.quitClient(.with { $0.identifier = name }))
        #expect(eventually { ProcFS.state(process.pid).map { $0 == "Z" } ?? true })
        #expect(actor.staysAway(milliseconds: 1_000))
        try stop(first)
        let second = try start()
        #expect(try WireClient(path: second.socketPath).status().notRunning == [name])
        #expect(actor.staysAway(milliseconds: 1_000))
        try stop(second)
        // Quit before the machine was started:
        let path = state.file("identifiers")
        var table = try IdentifierTable(decoding: try SmallFile.read(path))
        table.change([name: IdentifierTable.Entry(user: geteuid(), isQuit: true, quitBoot: "earlier")])
        try Data(table.encoded).write(to: URL(fileURLWithPath: path))
        let third = try start()
        let next = try actor.returns("voip socket=\(first.socketPath)")
        #expect(try isServed(next.pid, by: third))
        try third.end(next)
    }

    @Test func aClientThatWasQuitIsLaunchedOnRequest() throws {
        let actor = try actor
        try declare(actor)
        let first = try start()
        let process = try actor.returns("voip socket=\(first.socketPath)")
        _ = try WireClient(path: first.socketPath).ask(.quitClient(.with { $0.identifier = name }))
        #expect(eventually { ProcFS.state(process.pid).map { $0 == "Z" } ?? true })
        try stop(first)
        let second = try start()
        let answer = try WireClient(path: second.socketPath).ask(
            .launchClient(.with { $0.identifier = name }))
        guard case .done = answer else { throw TestFailure("\(answer)") }
        let next = try actor.returns("voip socket=\(first.socketPath)")
        #expect(try isServed(next.pid, by: second))
        // It no longer counts as quit.
        try stop(second)
        kill(next.pid, SIGKILL)
        #expect(eventually { ProcFS.state(next.pid).map { $0 == "Z" } ?? true })
        let third = try start()
        try third.end(actor.returns("voip socket=\(first.socketPath)"))
    }

    @Test func aClientThatIsAboutToReturnCanBeQuit() throws {
        let actor = try actor
        try declare(actor)
        let first = try start()
        let process = try actor.returns("voip no-reconnect socket=\(first.socketPath)")
        try stop(first)
        let second = try start()
        let answer = try WireClient(path: second.socketPath).ask(
            .quitClient(.with { $0.identifier = name }))
        guard case .done = answer else { throw TestFailure("\(answer)") }
        // The next worker knows as well.
        try second.killWorker()
        // It is asked to end, and not launched again.
        #expect(eventually(within: 20_000) { ProcFS.state(process.pid).map { $0 == "Z" } ?? true })
        #expect(actor.staysAway(milliseconds: 1_000))
    }

    @Test func aLaunchTakesBackTheQuitOfAClientThatIsAboutToReturn() throws {
        let actor = try actor
        try declare(actor)
        let first = try start()
        let process = try actor.returns("voip socket=\(first.socketPath)")
        try stop(first)
        kill(process.pid, SIGSTOP)
        let second = try start()
        let administrator = try WireClient(path: second.socketPath)
        for request: WireClientMessage.OneOf_Body in [
            .quitClient(.with { $0.identifier = name }), .launchClient(.with { $0.identifier = name }),
        ] {
            let answer = try administrator.ask(request)
            guard case .done = answer else { throw TestFailure("\(answer)") }
        }
        kill(process.pid, SIGCONT)
        #expect(
            eventually(within: 20_000) {
                (try? administrator.info(of: name))?.processID == UInt32(process.pid)
            })
        try second.end(process)
    }

    @Test func aClientThatReturnsAfterItWasQuitIsToldToEnd() throws {
        let actor = try actor
        try declare(actor)
        let first = try start()
        let process = try actor.returns("voip socket=\(first.socketPath)")
        try stop(first)
        kill(process.pid, SIGSTOP)
        let second = try start()
        let answer = try WireClient(path: second.socketPath).ask(
            .quitClient(.with { $0.identifier = name }))
        kill(process.pid, SIGCONT)
        guard case .done = answer else { throw TestFailure("\(answer)") }
        try process.event("will-terminate")
        #expect(eventually(within: 20_000) { ProcFS.state(process.pid).map { $0 == "Z" } ?? true })
        #expect(actor.staysAway(milliseconds: 1_000))
    }
}

extension WireClient {
    func info(of identifier: String) throws -> WireClientInfo? {
        guard case .clientInfo(let info) = try ask(.show(.with { $0.identifier = identifier })) else {
            return nil
        }
        return info
    }
}

extension DaemonProcess {
    /// Ends a process that it has launched, without a new launch.
    func end(_ process: TestClientProcess) throws {
        kill(process.pid, SIGTERM)
        guard eventually({ ProcFS.state(process.pid).map { $0 == "Z" } ?? true }) else {
            throw TestFailure("it does not end")
        }
    }
}
