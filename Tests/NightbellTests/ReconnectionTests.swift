import LinuxSystem
import Nightbell
import NightbellWire
import SwiftProtobuf
import Testing

@Suite struct ReconnectionTests {
    /// A supervisor that does not know the client gets its observations again; one that is refused is given
    /// up.
    @Test func observesAgain() throws {
        var session = SessionFixture.connected()
        try session.done(.observe("home", .region(latitude: 1, longitude: 2, radius: 300)), at: 0)
        try session.done(.observe("reader", .accessory(path: "/dev/reader")), at: 0)
        try session.done(.observe("gone", .significantLocationChange), at: 0)
        try session.done(.stopObserving("gone"), at: 0)
        for round in 0..<2 {
            let now = Int64(round + 1) * 10 * second
            session.perform(session.state.lost(NightbellError(.connectionLost, ""), at: now))
            _ = session.state.tick(at: now + second)
            session.sent = []
            session.perform(session.state.connectionMade(at: now + second))
            session.answer(.welcome(.init()), at: now + second)
            var observed: [String] = []
            while case .observe(let observe)? = session.sent.last?.body, observed.last != observe.name {
                observed.append(observe.name)
                let isRefused = round == 0 && observe.name == "home"
                let refusal = WireError.with { $0.code = .tooManyObservations }
                session.answer(isRefused ? .error(refusal) : .done(.init()), at: now + second)
            }
            #expect(observed == (round == 0 ? ["home", "reader"] : ["reader"]))
            #expect(session.state.isConnected)
        }
    }

    @Test func handsEverythingOverAgain() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let woken = Promise<Wake>()
        var handlers = diary.handlers()
        handlers.wake = { woken.fulfil($0) }
        let client = try Client(of: supervisor, handlers: handlers)
        let pipe = try Pipe()
        let parked = try client.handOver(pipe.descriptor, as: .device, name: "kept")
        let released = try client.handOver(pipe.descriptor, as: .device, name: "released")
        try client.release(released)
        try client.setKeepAliveTimeout(.seconds(700)) {}
        let task = try client.beginBackgroundTask("call")
        try client.enterBackground()
        try diary.expect("background")
        _ = try supervisor.expect("BackgroundEntered") {
            $0.message.body == .backgroundEntered(.init()) ? true : nil
        }

        supervisor.hangUp()
        try diary.expect("reconnected")
        #expect(diary.all == ["background", "lost connectionLost", "reconnected"])
        let bodies = try (0..<6).map { _ in
            try supervisor.expect("message") { ($0.connection, $0.message.body, $0.descriptors) }
        }
        #expect(bodies.allSatisfy { $0.0 == 2 })
        guard case .hello? = bodies[0].1, case .handOver(let handOver)? = bodies[1].1,
            case .setKeepAliveTimeout(let keepAlive)? = bodies[2].1,
            case .beginBackgroundTask(let begin)? = bodies[3].1, case .enterBackground? = bodies[4].1,
            // The client's handler has no work again.
            case .backgroundEntered? = bodies[5].1
        else {
            Issue.record("\(bodies)")
            return
        }
        #expect(handOver.sockets.map(\.name) == ["kept"])
        #expect(bodies[1].2 == 1)
        #expect(keepAlive.timeoutMs == 700_000)
        #expect(begin.name == "call")

        // Handles are still valid, under the new supervisor's names.
        try supervisor.wake(1, [.socket], tokens: [0x1002])
        #expect(try woken.wait().sockets.map(\.socket) == [parked])
        try client.end(task)
        let taskID = try supervisor.expect("EndBackgroundTask") { received in
            if case .endBackgroundTask(let body)? = received.message.body { body.taskID } else { nil }
        }
        #expect(taskID == 2)
        try client.release(parked)
        let token = try supervisor.expect("Release") { received in
            if case .release(let body)? = received.message.body { body.token } else { nil }
        }
        #expect(token == 0x1002)
        #expect(diary.all == ["background", "lost connectionLost", "reconnected"])
    }

    @Test func reportsRefusalsOfTheNewSupervisor() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers())
        let pipe = try Pipe()
        let refused = try client.handOver(pipe.descriptor, as: .device, name: "refused")
        let other = try pipe.reader.duplicate().take()
        let closed = try client.handOver(other, as: .device, name: "closed")
        OwnedDescriptor(adopting: other).close()
        try client.setKeepAliveTimeout(.seconds(700)) {}
        let task = try client.beginBackgroundTask("call")
        supervisor.script { message in
            switch message.body {
            case .handOver:
                .answer([
                    .handedOver(.with { $0.adoptions = [.with { $0.error = .sample(.tooManySockets) }] })
                ])
            case .setKeepAliveTimeout: .answer([.error(.sample(.timeoutTooShort))])
            case .beginBackgroundTask: .answer([.backgroundTask(.init())])
            default: .usual
            }
        }
        supervisor.hangUp()
        try diary.expect("reconnected")
        #expect(
            diary.all == [
                "lost connectionLost", "socket lost closed descriptorGone",
                "socket lost refused tooManySockets",
                "keep-alive lost timeoutTooShort", "expiring 0.0 seconds", "reconnected",
            ])
        #expect(try thrown { try client.release(refused) }.code == .invalidToken)
        #expect(try thrown { try client.release(closed) }.code == .invalidToken)
        #expect(try thrown { try client.end(task) }.code == .invalidTask)
    }

    @Test func recordsRequestsWithoutASupervisor() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers())
        let pipe = try Pipe()
        let parked = try client.handOver(pipe.descriptor, as: .device)
        let task = try client.beginBackgroundTask()
        supervisor.stop()
        try diary.expect("lost connectionLost")
        #expect(!client.isConnected)
        try client.release(parked)
        try client.end(task)
        try client.clearKeepAliveTimeout()
        try client.enterBackground()
        #expect(try thrown { _ = try client.handOver(pipe.descriptor, as: .device) }.code == .disconnected)
        #expect(try thrown { _ = try client.beginBackgroundTask() }.code == .disconnected)
        #expect(try thrown { _ = try client.backgroundTimeRemaining() }.code == .disconnected)

        try supervisor.start()
        // It has never entered the background before, so now its handler runs.
        try diary.expect("background")
        let bodies = try (0..<2).map { _ in
            try supervisor.expect("message on the second connection") {
                $0.connection == 2 ? $0.message.body : nil
            }
        }
        guard case .hello? = bodies.first, case .enterBackground? = bodies.last else {
            Issue.record("\(bodies)")
            return
        }
    }

    @Test func reportsTheSupervisorsError() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers())
        try supervisor.send(.error(.sample(.tooSlow)))
        try diary.expect("lost tooSlow")
        try diary.expect("reconnected")
        #expect(client.isConnected)
    }

    @Test func expectsTheEndOfASupervisorThatIsStopping() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers())
        try supervisor.wake(1, [.supervisorStopping])
        #expect(try supervisor.expectWakeDone() == 1)
        supervisor.hangUp()
        try diary.expect("reconnected")
        #expect(diary.all == ["wake 1 supervisor-stopping", "lost shuttingDown", "reconnected"])
        #expect(client.isConnected)
    }

    @Test(arguments: [
        [UInt8](repeating: 0xff, count: 40),
        // An answer without a request.
        [0x08, 0x63, 0x12, 0x00],
        // `Done` with request 0.
        [0x12, 0x00],
    ])
    func disconnectsAfterAMalformedMessage(_ packet: [UInt8]) throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers())
        try supervisor.send(raw: packet)
        try diary.expect("lost malformedAnswer")
        try diary.expect("reconnected")
        #expect(client.isConnected)
    }

    @Test func ignoresMessagesOfANewerSupervisor() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers())
        // Field 100, a message of length 0.
        try supervisor.send(raw: [0xa2, 0x06, 0x00])
        try client.mediaActivity()
        #expect(client.isConnected)
        #expect(diary.all.isEmpty)
    }

    @Test func failsRequestsWithAnAnswerOfTheWrongKind() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers())
        supervisor.script { message in
            if case .backgroundTimeRemaining? = message.body { .answer([.done(.init())]) } else { .usual }
        }
        #expect(try thrown { _ = try client.backgroundTimeRemaining() }.code == .malformedAnswer)
        try diary.expect("lost malformedAnswer")
    }

    @Test func failsRequestsWhenTheConnectionEnds() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers())
        supervisor.script { message in
            switch message.body {
            case .backgroundTimeRemaining, .enterBackground: .hangUp
            default: .usual
            }
        }
        #expect(try thrown { _ = try client.backgroundTimeRemaining() }.code == .connectionLost)
        try diary.expect("reconnected")
    }

    @Test func endsForGoodWithoutReconnection() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers()) { $0.reconnects = false }
        supervisor.hangUp()
        try diary.expect("lost connectionLost")
        let error = try thrown { try client.enterBackground() }
        #expect(error.code == .closed)
        #expect(error.message.contains("The connection to the supervisor ended"))
    }

    @Test func endsForGoodWhenItWouldBeRefusedForEver() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers())
        supervisor.script { message in
            if case .hello? = message.body {
                .answer([.error(.sample(.unsupportedVersion))])
            } else {
                .usual
            }
        }
        supervisor.hangUp()
        try diary.expect("lost unsupportedVersion")
        #expect(try thrown { try client.enterBackground() }.code == .closed)
    }
}
