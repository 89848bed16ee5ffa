import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire
import SwiftProtobuf
import Testing

/// Clients that are back before the supervisor has handled their end.
@Suite(.serialized, .timeLimit(.minutes(40))) struct SuccessorTests {
    private let name = "org.example.phone"

    /// The supervisor handles the Hello of the next process before the end of the last.
    @Test(arguments: [false, true])
    func aProcessIsAdmittedBeforeTheEndOfThePreviousOneIsHandled(canLaunch: Bool) throws {
        let daemon = try DaemonProcess(
            suspension: "none", "--set launches.retry=5m --set launches.retryMaximum=5m")
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let scripted = canLaunch ? nil : try ScriptedClientProcess(path: daemon.socketPath, name)
        let first = canLaunch ? try actor.start() : nil
        let pid = try #require(first?.pid ?? scripted?.pid)
        let peer = try first?.park("s")
        defer { if let peer { close(peer) } }
        let next = try WireClient(path: daemon.socketPath)
        // It is served, and so it has been accepted, and so have those before it.
        let worker = pid_t(try next.status().processID)
        #expect(eventually { threads(of: worker, are: "S") })
        #expect(stop(worker))
        try next.sayHello(name)
        let handle = try ProcessHandle(opening: pid)
        kill(pid, SIGKILL)
        #expect(!Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 10_000).isEmpty)
        kill(worker, SIGCONT)
        try next.isWelcome(withSockets: peer.map { _ in ["s"] } ?? [])
        #expect(try next.show(name).processID == UInt32(getpid()))
    }

    @Test func aProcessMayBeTheSameClientAgainAtOnce() throws {
        let supervisor = try TestSupervisor()
        let actor = try TestClient(name, of: supervisor)
        let first = try actor.start()
        let peer = try first.park("s")
        defer { close(peer) }
        try first.command("goodbye")
        try first.command("hello \(name) voip socket=\(supervisor.socketPath)")
        #expect(try supervisor.show(name)?.sockets.isEmpty == true)
        try first.command("close s")
        #expect(!Poll.wait(peer, for: .peerClosed, timeoutMilliseconds: 10_000).isEmpty)
        try supervisor.stop()
    }
}

extension WireClient {
    fileprivate func sayHello(_ identifier: String) throws {
        let hello = WireHello.with {
            $0.version = 1
            $0.identifier = identifier
            $0.modes = [.voip]
            $0.takesSocketsBack = true
        }
        try send(.hello(hello), request: 1_000)
    }

    fileprivate func isWelcome(withSockets names: [String]) throws {
        switch try answer(to: 1_000) {
        case .welcome(let welcome): #expect(welcome.previousProcess.sockets.map(\.name) == names)
        case let other: throw TestFailure("no welcome: \(other)")
        }
    }
}
