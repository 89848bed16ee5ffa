import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// The worker dies at each step of a notification: it is shown, and its activation is told, whichever worker is
/// there.
@Suite(.serialized, .timeLimit(.minutes(40))) struct NotificationFaultTests {
    private static let name = "org.example.tea"

    @Test func deathAtEveryStep() throws {
        var step = 1
        var deaths = 0
        while try Life(dyingAt: step).live() || step == 1 {
            deaths += 1
            step += 1
        }
        #expect(deaths > 20, "only \(deaths) steps")
    }

    @Test(arguments: [
        "after a notification is posted", "before a notification counts as shown",
        "after a notification counts as shown", "before a notification is stored",
        "after a notification is stored", "before a wake counts as told",
    ])
    func deathAtTheWorstMoments(point: String) throws {
        var deaths = 0
        for number in 1...4 where try Life(dyingAt: number, point: point).live() { deaths += 1 }
        #expect(deaths > 0, "\(point) is never reached")
    }

    /// One notification, with a server that remembers what it shows.
    private final class Life {
        private let words: String
        private let monitor: FakeMonitor
        private let daemon: DaemonProcess
        private var client: WireClient
        /// The server's notifications, by the supervisor's numbers.
        private var shown: [UInt64: UInt32] = [:]
        private var showings = 0
        private var connections = 0
        private var clicks = 0
        private var told: Set<UInt64> = []

        init(dyingAt step: Int, point: String? = nil) throws {
            words = "\(point ?? "step"), \(step)"
            monitor = try FakeMonitor()
            let at = point.map { "export NIGHTBELL_FAULT_AT='\($0)'; " } ?? ""
            daemon = try DaemonProcess(
                suspension: "none", before: "\(at)export NIGHTBELL_FAULT=\(step)",
                "--set monitorProgram='\(monitor.program.path)'")
            client = try WireClient(path: daemon.socketPath)
        }

        /// - Returns: whether the worker died.
        func live() throws -> Bool {
            try connect()
            try schedule()
            let isTold = try eventually(within: 30_000) {
                try takeWakes()
                try serve()
                return !told.isEmpty
            }
            #expect(isTold, "\(words): shown \(showings) times, clicked \(clicks) times, and not told")
            // Shown again only if the supervisor had no time to record it.
            #expect(showings <= 2, "\(words): shown \(showings) times")
            #expect(told.count <= clicks, "\(words)")
            var restarts: UInt64 = 0
            try retry { restarts = try WireClient(path: daemon.socketPath).status().restarts }
            return restarts > 0
        }

        /// A connection may be lost before its client is recorded: then it connects again.
        private func connect() throws {
            try retry {
                client = try WireClient(path: daemon.socketPath)
                try client.hello(NotificationFaultTests.name)
                try client.enterBackground()
            }
        }

        private func schedule() throws {
            let message = WireScheduleNotification.with {
                $0.notification.identifier = "tea"
                $0.notification.content.title = "Tea"
                $0.notification.afterMs = 50
            }
            for number in UInt64(100)...103 {
                try client.send(.scheduleNotification(message), request: number)
                var isRepeated = false
                while let answer = try client.receiveIfAny(within: 5_000) {
                    if answer.request == number { return }
                    if try isRestart(answer) {
                        var again = WireClientMessage()
                        again.request = number
                        again.isRepeated = true
                        again.body = .scheduleNotification(message)
                        try client.sendRaw(try again.serializedBytes())
                        isRepeated = true
                    }
                }
                if isRepeated { throw TestFailure("\(words): no answer to a repeated request") }
            }
            throw TestFailure("\(words): no answer")
        }

        private func isRestart(_ message: WireSupervisorMessage) throws -> Bool {
            guard case .supervisorRestarted(let restarted) = message.body else { return false }
            try client.send(.restartNoted(.with { $0.restart = restarted.restart }))
            return true
        }

        private func takeWakes() throws {
            while let message = try client.receiveIfAny(within: 10) {
                if try isRestart(message) { continue }
                guard case .wake(let wake) = message.body else { continue }
                for event in wake.notifications { told.insert(event.number) }
                try client.finish(wake)
            }
        }

        /// The monitor of the session, or the next one.
        private func serve() throws {
            if monitor.isStarted(within: 0) {
                try monitor.start()
                connections += 1
                try? monitor.report(
                    .notificationServer(
                        .with {
                            $0.name = "server"
                            $0.connection = ":1.\(connections)"
                        }))
                // A person sees that nothing has happened, and clicks once more. The server tells only the
                // connection that has shown it last.
            }
            while let demand = try? monitor.nextDemand(within: 10) {
                for post in demand.posts {
                    if post.replaces == 0 { showings += 1 }
                    let id = post.replaces == 0 ? UInt32(showings) : post.replaces
                    shown[post.number] = id
                    try? monitor.report(shown: post, as: id)
                    try click(id)
                }
            }
        }

        private func click(_ id: UInt32) throws {
            clicks += 1
            try? monitor.report(
                .notification(
                    .with {
                        $0.id = id
                        $0.activated = .with { $0.action = "default" }
                    }))
        }

        private func retry(_ body: () throws -> Void) throws {
            var last: (any Error)?
            for _ in 0..<5 {
                do {
                    return try body()
                } catch is WireClient.EndOfConnection {
                    continue
                } catch let error as SystemError where error.code == EPIPE || error.code == ECONNRESET {
                    continue
                } catch {
                    last = error
                }
            }
            throw last ?? TestFailure("\(words): no worker answers")
        }
    }
}
