import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire
import SwiftProtobuf
import Testing

/// The worker dies at each single step of ending a client, keeping its sockets and state, and launching it
/// again: they are there for the next process, of which there is one.
@Suite(.serialized, .timeLimit(.minutes(40))) struct RelaunchFaultTests {
    private let name = "org.example.phone"

    @Test func deathAtEveryStep() throws {
        var step = 1
        var deaths = 0
        while try live(dyingAt: step) || step == 1 {
            deaths += 1
            step += 1
        }
        // Fewer would mean that the fault points are no longer reached.
        #expect(deaths > 60, "only \(deaths) steps")
    }

    /// A client that was given up stays away with every later worker, at any step of giving it up.
    @Test func aClientThatWasGivenUpStaysAway() throws {
        var step = 1
        while try giveUp(dyingAt: step) || step == 1 { step += 1 }
        #expect(step > 20, "only \(step) steps")
    }

    /// A client with a program that cannot be run any more; returns whether the worker died.
    private func giveUp(dyingAt step: Int) throws -> Bool {
        let flags = "--set launches.retry=10ms --set launches.relaunches=1"
        let daemon = try DaemonProcess(suspension: "none", before: "export NIGHTBELL_FAULT=\(step)", flags)
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        actor.program = "/etc/passwd"
        let first = try actor.start()
        let peer = try first.park("registration")
        defer { close(peer) }
        kill(first.pid, SIGKILL)
        #expect(Poll.wait(peer, for: .peerClosed, timeoutMilliseconds: 20_000) != [], "step \(step)")
        let isGone = try eventually {
            try ask(daemon) { try $0.status().clientsByState.isEmpty }
        }
        #expect(isGone, "step \(step)")
        let restarts = try ask(daemon) { try $0.status().restarts }
        // Nor does the keeper remember it.
        try killWorker(of: daemon)
        #expect(try ask(daemon) { try $0.status().clientsByState.isEmpty }, "step \(step), one worker later")
        return restarts > 0
    }

    /// A worker without descriptors cannot launch a client. It is not the client's fault, so it is tried
    /// until it works.
    @Test func aShortageOfDescriptorsIsNoCrash() throws {
        let daemon = try DaemonProcess(
            suspension: "none", "--set launches.retry=10ms --set launches.relaunches=1")
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let first = try actor.start()
        let peer = try first.park("registration")
        defer { close(peer) }
        let worker = try daemon.worker()
        try limit(worker, "3:")
        kill(first.pid, SIGKILL)
        // As a crash it would be given up after a few milliseconds.
        #expect(Poll.wait(peer, for: .peerClosed, timeoutMilliseconds: 2_500).isEmpty)
        #expect(actor.staysAway(milliseconds: 0), "the worker still has descriptors")
        try limit(worker, "1024:")
        let second = try actor.returns()
        #expect(try second.event("restored").contains("sockets=registration:"))
        #expect(try daemon.worker() == worker)
    }

    private func limit(_ process: pid_t, _ descriptors: String) throws {
        let command = Process()
        command.executableURL = URL(fileURLWithPath: "/usr/bin/prlimit")
        command.arguments = ["--pid", "\(process)", "--nofile=\(descriptors)"]
        try command.run()
        command.waitUntilExit()
        #expect(command.terminationStatus == 0)
    }

    /// Background tasks end with their process, however many workers die.
    @Test func tasksEndWithTheirProcess() throws {
        var step = 1
        while try leaveTask(dyingAt: step) || step == 1 { step += 1 }
        #expect(step > 20, "only \(step) steps")
    }

    private func leaveTask(dyingAt step: Int) throws -> Bool {
        let flags = "--set launches.retry=10ms --set launches.retryMaximum=10ms"
        let daemon = try DaemonProcess(suspension: "none", before: "export NIGHTBELL_FAULT=\(step)", flags)
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let first = try actor.start()
        try first.command("begin work")
        kill(first.pid, SIGKILL)
        let second = try actor.returns()
        try second.event("wake")
        let restarts = try ask(daemon) { try $0.status().restarts }
        try killWorker(of: daemon)
        let info = try ask(daemon) { try $0.show(self.name) }
        #expect(info.backgroundTasks.isEmpty && info.processID == UInt32(second.pid), "step \(step)")
        try second.say("exit 0")
        #expect(try eventually { try ask(daemon) { try $0.status().clientsByState.isEmpty } })
        return restarts > 0
    }

    /// Sockets that the next process does not take back are closed, and no later worker has them again.
    @Test func socketsThatAreNotTakenBackAreClosed() throws {
        var step = 1
        while try leaveSocket(dyingAt: step) || step == 1 { step += 1 }
        #expect(step > 20, "only \(step) steps")
    }

    private func leaveSocket(dyingAt step: Int) throws -> Bool {
        let flags = "--set launches.retry=5m --set launches.retryMaximum=5m"
        let daemon = try DaemonProcess(suspension: "none", before: "export NIGHTBELL_FAULT=\(step)", flags)
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let first = try actor.start()
        let peer = try first.park("registration")
        defer { close(peer) }
        kill(first.pid, SIGKILL)
        try waitUntil(.dormant, daemon)
        let next = try rejoin(daemon)
        #expect(Poll.wait(peer, for: .peerClosed, timeoutMilliseconds: 20_000) != [], "step \(step)")
        let restarts = try ask(daemon) { try $0.status().restarts }
        try killWorker(of: daemon)
        let info = try ask(daemon) { try $0.show(self.name) }
        #expect(info.sockets.isEmpty && info.processID == UInt32(getpid()), "step \(step)")
        withExtendedLifetime(next) {}
        return restarts > 0
    }

    /// The keeper gives up the descriptors of a process that has ended, at whichever step the worker dies.
    @Test func nothingOfAnEndedProcessIsKept() throws {
        // The first number may be taken while the keeper has yet to close some: the second look waits for
        // that.
        let first = try #require(try keptAfterCrash(dyingAt: 1_000_000).descriptors)
        let second = try #require(try keptAfterCrash(dyingAt: 1_000_000, first).descriptors)
        let usual = min(first, second)
        var step = 2
        while true {
            let (descriptors, hasDied) = try keptAfterCrash(dyingAt: step, usual)
            #expect(descriptors == usual, "step \(step)")
            guard hasDied else { break }
            step += 1
        }
        #expect(step > 10, "only \(step) steps")
    }

    /// Returns how many descriptors the keeper has open once the next worker serves.
    private func keptAfterCrash(
        dyingAt step: Int, _ usual: Int? = nil
    ) throws -> (descriptors: Int?, hasDied: Bool) {
        let flags = "--set launches.retry=5m --set launches.retryMaximum=5m"
        let daemon = try DaemonProcess(suspension: "none", before: "export NIGHTBELL_FAULT=\(step)", flags)
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let first = try actor.start()
        let peer = try first.park("registration")
        defer { close(peer) }
        kill(first.pid, SIGKILL)
        try waitUntil(.dormant, daemon)
        let restarts = try ask(daemon) { try $0.status().restarts }
        try killWorker(of: daemon)
        let keeper = daemon.child.pid
        _ = eventually { usual == nil || ProcFS.openDescriptors(keeper) == usual }
        return (ProcFS.openDescriptors(keeper), restarts > 0)
    }

    /// A process started by hand takes them back, at whichever step of that the worker dies.
    @Test func aProcessStartedByHandHasTheSockets() throws {
        var step = 1
        while try startByHand(dyingAt: step) || step == 1 { step += 1 }
        #expect(step > 20, "only \(step) steps")
    }

    private func startByHand(dyingAt step: Int) throws -> Bool {
        let flags = "--set launches.retry=5m --set launches.retryMaximum=5m"
        let daemon = try DaemonProcess(suspension: "none", before: "export NIGHTBELL_FAULT=\(step)", flags)
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let first = try actor.start()
        let peer = try first.park("registration")
        defer { close(peer) }
        kill(first.pid, SIGKILL)
        try waitUntil(.dormant, daemon)
        let second = try actor.start()
        #expect(try second.event("restored").contains("sockets=registration:"), "step \(step)")
        #expect(try second.event("wake").contains("relaunched"), "step \(step)")
        try peer.say("call")
        try second.command("read registration")
        #expect(try second.event("read").hasPrefix("read registration 4"), "step \(step)")
        let restarts = try ask(daemon) { try $0.status().restarts }
        try second.say("exit 0")
        #expect(try eventually { try ask(daemon) { try $0.status().clientsByState.isEmpty } })
        return restarts > 0
    }

    /// This process becomes the client, and takes nothing back. Its Hello is repeated as the protocol asks.
    private func rejoin(_ daemon: DaemonProcess) throws -> WireClient {
        var message = WireClientMessage()
        message.request = 1
        message.hello = WireHello.with {
            $0.version = 1
            $0.identifier = name
            $0.modes = [.voip]
        }
        for _ in 0..<3 {
            do {
                let client = try WireClient(path: daemon.socketPath)
                message.isRepeated = false
                try client.sendRaw(try message.serializedBytes())
                while true {
                    switch try client.receive().body {
                    case .welcome: return client
                    case .supervisorRestarted:
                        message.isRepeated = true
                        try client.sendRaw(try message.serializedBytes())
                    // It was recorded, and is woken, before it is welcomed.
                    case .wake: break
                    case let other: throw TestFailure("no welcome: \(String(describing: other))")
                    }
                }
            } catch is WireClient.EndOfConnection {
                continue
            } catch let error as SystemError where error.code == EPIPE || error.code == ECONNRESET {
                continue
            }
        }
        throw TestFailure("no worker answers")
    }

    /// A life of four processes; returns whether the worker died in it.
    private func live(dyingAt step: Int) throws -> Bool {
        let directory = try TemporaryDirectory()
        let log = directory.file("log")
        let flags =
            "--set launches.retry=30ms --set launches.retryMaximum=30ms --log-level debug 2>'\(log)'"
        // A stopped client could not be given commands by this test.
        let daemon = try DaemonProcess(suspension: "none", before: "export NIGHTBELL_FAULT=\(step)", flags)
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let comment = Comment("step \(step)")
        do {
            let first = try actor.start()
            let peer = try first.park("registration")
            let other = try first.park("other", "")
            defer {
                close(peer)
                close(other)
            }
            try first.command("save-state cseq=17")
            try first.say("hibernate")
            try first.say("background")
            try waitUntil(.dormant, daemon)
            #expect(Poll.wait(other, for: .peerClosed, timeoutMilliseconds: 10_000) != [], comment)
            try call(peer, actor, "INVITE", comment, state: "cseq=17") { process in
                try process.command("save-state cseq=18")
                kill(process.pid, SIGKILL)
            }
            // It has crashed, and is launched without a call.
            let third = try actor.returns()
            #expect(try third.event("restored").hasSuffix("sockets=registration:3 state=cseq=18"), comment)
            #expect(try third.event("wake").contains("relaunched"), comment)
            try third.say("hibernate")
            try waitUntil(.dormant, daemon)
            try call(peer, actor, "CANCEL", comment, state: "cseq=18") { process in
                try process.say("exit 0")
            }
            #expect(Poll.wait(peer, for: .peerClosed, timeoutMilliseconds: 10_000) != [], comment)
            if !actor.staysAway(milliseconds: 80) {
                let unwanted = try actor.returns()
                throw TestFailure("launched again: \(try unwanted.event("wake"))")
            }
            let left = try ask(daemon) { try $0.status() }
            #expect(left.sockets == 0 && left.restarts < 2, comment)
            return left.restarts > 0
        } catch {
            let info = try? ask(daemon) { try $0.show(self.name) }
            let said = (try? String(contentsOfFile: log, encoding: .utf8)) ?? ""
            throw TestFailure("step \(step): \(error), \(info.map { "\($0)" } ?? "no client")\n\(said)")
        }
    }

    /// Calls a client without a process: one is launched, told, reads and answers.
    private func call(
        _ peer: Int32, _ actor: TestClient, _ words: String, _ comment: Comment, state: String,
        _ end: (TestClientProcess) throws -> Void
    ) throws {
        try peer.say(words)
        let process = try actor.returns()
        let restored = try process.event("restored")
        #expect(restored == "restored launched=true sockets=registration:3 state=\(state)", comment)
        #expect(try process.event("wake").contains("reasons=socket sockets=registration:readable"), comment)
        try process.command("read registration")
        #expect(try process.event("read").hasPrefix("read registration \(words.utf8.count) "), comment)
        try process.command("write registration OK")
        var bytes: [UInt8] = [0, 0]
        #expect(Poll.wait(peer, for: .readable, timeoutMilliseconds: 10_000) != [], comment)
        #expect(recv(peer, &bytes, 2, Int32(MSG_DONTWAIT)) == 2 && bytes == Array("OK".utf8), comment)
        #expect(actor.staysAway(milliseconds: 0), "two processes, \(comment)")
        try end(process)
    }

    private func waitUntil(_ state: WireClientState, _ daemon: DaemonProcess) throws {
        let isReached = try eventually { try ask(daemon) { try $0.show(self.name).state } == state }
        guard isReached else {
            throw TestFailure("not \(state): \(try ask(daemon) { try $0.show(self.name) })")
        }
    }

    /// A worker that is to die at a step may do so when it is asked for its pid.
    private func killWorker(of daemon: DaemonProcess) throws {
        do {
            try daemon.killWorker()
        } catch is WireClient.EndOfConnection {
            try daemon.killWorker()
        }
    }

    /// The worker may die while it answers: then ask the next one.
    private func ask<Answer>(_ daemon: DaemonProcess, _ body: (WireClient) throws -> Answer) throws -> Answer
    {
        for _ in 0..<3 {
            do {
                return try body(try WireClient(path: daemon.socketPath))
            } catch is WireClient.EndOfConnection {
                continue
            } catch let error as SystemError where error.code == EPIPE || error.code == ECONNRESET {
                continue
            }
        }
        throw TestFailure("no worker answers")
    }
}
