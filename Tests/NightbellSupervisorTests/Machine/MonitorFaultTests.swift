import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// The worker dies while it handles another network: each client is told once.
@Suite(.serialized, .timeLimit(.minutes(40))) struct MonitorFaultTests {
    private static let name = "org.example.phone"

    @Test(arguments: [
        "after the monitor is started", "after a fact is learned", "before the network is stored",
        "after the network is stored", "before the state of a client is stored",
        "after the state of a client is stored", "before paths are reported", "after paths are reported",
        "before a client is told", "after a client is told", "before a wake counts as told",
    ])
    func deathAtEveryStep(point: String) throws {
        // Points are passed for other reasons as well: each of the first ones may be the one that matters.
        var deaths = 0
        for number in 1...4 where try live(dyingAt: point, number) { deaths += 1 }
        #expect(deaths > 0, "\(point) is never reached")
    }

    /// Returns whether the worker died after the network had become known.
    private func live(dyingAt point: String, _ number: Int) throws -> Bool {
        let monitor = try FakeMonitor()
        let daemon = try DaemonProcess(
            suspension: "none", before: "export NIGHTBELL_FAULT_AT='\(point)' NIGHTBELL_FAULT=\(number)",
            "--set monitorProgram='\(monitor.program.path)'")
        let client = try connect(daemon)
        var address: [UInt8] = [192, 0, 2, 1]
        try settle(monitor, daemon) { address }
        address = [192, 0, 2, 7]
        var wakes: Set<UInt64> = []
        func takeWakes() throws {
            while let message = try client.receiveIfAny(within: 20) {
                if case .wake(let wake) = message.body, wake.reasons.contains(.networkChanged) {
                    wakes.insert(wake.wakeID)
                }
                if case .supervisorRestarted(let restarted) = message.body {
                    try client.send(.restartNoted(.with { $0.restart = restarted.restart }))
                }
            }
        }
        try? monitor.report(network: address)
        let isTold = try eventually(within: 20_000) {
            try takeWakes()
            try serve(monitor, address)
            return !wakes.isEmpty
        }
        #expect(isTold, "\(point), \(number): not told")
        // Whatever is repeated comes before the answers of the worker that serves then.
        try settle(monitor, daemon) { address }
        try takeWakes()
        // The client is recorded before the network: between the two it is told again rather than never.
        let between = ["after the state of a client is stored", "before the network is stored"]
        let most = between.contains(point) ? 2 : 1
        #expect(1...most ~= wakes.count, "\(point), \(number): told \(wakes.count) times")
        return try ask(daemon) { try $0.status().restarts } > 0
    }

    /// A connection may be lost before its client is recorded, or the client before it is told: then it
    /// connects again.
    private func connect(_ daemon: DaemonProcess) throws -> WireClient {
        var last: (any Error)?
        for _ in 0..<3 {
            let client = try WireClient(path: daemon.socketPath)
            client.endsWithWorker = true
            do {
                try client.hello(Self.name, wantsNetworkChanges: true)
                try client.enterBackground()
                client.endsWithWorker = false
                return client
            } catch {
                last = error
            }
        }
        throw TestFailure("no Hello: \(last.map { "\($0)" } ?? "")")
    }

    /// Tells the network to a worker that asks for it.
    private func serve(_ monitor: FakeMonitor, _ address: [UInt8]) throws {
        if monitor.isStarted(within: 0) { try monitor.start() }
        if let demand = try? monitor.nextDemand(within: 0), demand.sources.contains(.network) {
            try? monitor.report(network: address)
        }
    }

    /// Waits until a worker knows the network.
    private func settle(
        _ monitor: FakeMonitor, _ daemon: DaemonProcess, _ address: () -> [UInt8]
    ) throws {
        let isKnown = try eventually(within: 20_000) {
            try serve(monitor, address())
            return try ask(daemon) { try $0.status().sources.first { $0.name == "network" }?.isAvailable }
                == true
        }
        guard isKnown else { throw TestFailure("the network does not become known") }
    }

    /// The worker may die while it answers: then the next one is asked.
    private func ask<Answer>(_ daemon: DaemonProcess, _ body: (WireClient) throws -> Answer) throws -> Answer
    {
        for _ in 0..<5 {
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
