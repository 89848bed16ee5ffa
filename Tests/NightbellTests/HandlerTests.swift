import LinuxSystem
import Nightbell
import NightbellWire
import SwiftProtobuf
import Testing

extension FakeSupervisor {
    @discardableResult func expectWakeDone(sourceLocation: SourceLocation = #_sourceLocation) throws -> UInt64
    {
        try expect("WakeDone", sourceLocation: sourceLocation) { received in
            if case .wakeDone(let body)? = received.message.body { body.wakeID } else { nil }
        }
    }

    func expectReady(sourceLocation: SourceLocation = #_sourceLocation) throws -> WireReadyToSuspend {
        try expect("ReadyToSuspend", sourceLocation: sourceLocation) { received in
            if case .readyToSuspend(let body)? = received.message.body { body } else { nil }
        }
    }

    func prepare(_ epoch: UInt64) throws {
        try send(.prepareToSuspend(.with { $0.epoch = epoch }))
    }
}

@Suite struct HandlerTests {
    @Test func entersTheBackgroundWhenTheHandlerHasReturned() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        var handlers = diary.handlers()
        handlers.didEnterBackground = { [supervisor] in
            diary.note("entered before: \(supervisor.hasEntered)")
        }
        let client = try Client(of: supervisor, handlers: handlers)
        try client.enterBackground()
        _ = try supervisor.expect("BackgroundEntered") {
            $0.message.body == .backgroundEntered(.init()) ? true : nil
        }
        #expect(diary.all == ["entered before: false"])
        try client.enterForeground()
    }

    @Test func reportsTheEventsOfEachSocket() throws {
        let supervisor = try FakeSupervisor()
        let woken = Promise<Wake>()
        let client = try Client(of: supervisor, handlers: .init { woken.fulfil($0) })
        let pipe = try Pipe()
        let first = try client.handOver(pipe.descriptor, as: .device, name: "first")
        let second = try client.handOver(pipe.descriptor, as: .device, name: "second")
        var wake = WireWake.sample(5, [.socket, .clientMessage], tokens: [0x1001, 0x1000, 0xdead])
        wake.sockets[0].peerClosed = true
        wake.sockets[1].readable = false
        wake.sockets[1].hangUp = true
        wake.sockets[1].error = true
        try supervisor.send(.wake(wake))
        let seen = try woken.wait()
        #expect(seen.id == 5)
        #expect(seen.reasons == [.socket, .clientMessage])
        #expect(seen.sockets.map(\.socket) == [second, first])
        #expect(seen.conditions(of: second) == [.readable, .peerClosed])
        #expect(seen.conditions(of: first) == [.hangUp, .error])
        #expect(seen.budget == .seconds(10))
        #expect(seen.asleepFor == .milliseconds(2_500))
        #expect(try supervisor.expectWakeDone() == 5)
    }

    @Test func runsTheKeepAliveHandlerAfterTheWakeHandlerAndBeforeWakeDone() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers())
        try client.setKeepAliveTimeout(.seconds(600)) {
            diary.note("keep-alive, done before: \(supervisor.hasWakeDone)")
        }
        try supervisor.wake(1, [.keepAlive, .request])
        #expect(try supervisor.expectWakeDone() == 1)
        #expect(diary.all == ["wake 1 keep-alive+request", "keep-alive, done before: false"])
        // Not with other reasons, and not after it was cleared.
        try supervisor.wake(2, [.request])
        #expect(try supervisor.expectWakeDone() == 2)
        try client.clearKeepAliveTimeout()
        try supervisor.wake(3, [.keepAlive])
        #expect(try supervisor.expectWakeDone() == 3)
        #expect(diary.all.count == 4)
    }

    @Test func doesNotRunAHandlerThatIsSetInTheWakeInWhichTheOldOneIsDue() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = Promise<Client>()
        var handlers = diary.handlers()
        handlers.wake = { wake in
            guard wake.id == 1 else { return }
            try? client.wait().setKeepAliveTimeout(.seconds(600)) { diary.note("the new one") }
        }
        let made = try Client(of: supervisor, handlers: handlers)
        try made.setKeepAliveTimeout(.seconds(600)) { diary.note("the old one") }
        client.fulfil(made)
        try supervisor.wake(1, [.keepAlive])
        #expect(try supervisor.expectWakeDone() == 1)
        #expect(diary.all.isEmpty)
        try supervisor.wake(2, [.keepAlive])
        #expect(try supervisor.expectWakeDone() == 2)
        #expect(diary.all == ["the new one"])
    }

    @Test func notifiesEachTaskBeforeItsTimeEnds() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers())
        let other = Promise<BackgroundTask>()
        @Sendable func note(_ task: BackgroundTask, _ remaining: Duration) {
            diary.note("\(task.name) expires: \(remaining > .seconds(4) && remaining <= .seconds(5))")
        }
        let ended = try client.beginBackgroundTask("ended", expired: note)
        _ = try client.beginBackgroundTask("without")
        let first = try client.beginBackgroundTask("first") { task, remaining in
            note(task, remaining)
            try? client.end(task)
            try? other.wait().endIn(client)
        }
        other.fulfil(try client.beginBackgroundTask("ended by the first", expired: note))
        _ = try client.beginBackgroundTask("last", expired: note)
        try client.end(ended)
        try supervisor.send(.backgroundTimeExpiring(.with { $0.remainingMs = 5_000 }))
        try diary.expect("last expires: true")
        #expect(diary.all == ["expiring 5.0 seconds", "first expires: true", "last expires: true"])
        #expect(try thrown { try client.end(first) }.code == .invalidTask)
    }

    @Test func preparesAndNamesSocketsThatAreNotIdle() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let parked = Promise<ParkedSocket>()
        var handlers = diary.handlers()
        handlers.prepareToSuspend = { (try? parked.wait()).map { [$0] } ?? [] }
        let client = try Client(of: supervisor, handlers: handlers)
        let pipe = try Pipe()
        parked.fulfil(try client.handOver(pipe.descriptor, as: .device))
        try supervisor.prepare(3)
        let ready = try supervisor.expectReady()
        #expect(ready.epoch == 3)
        #expect(ready.notIdle == [0x1000])
        try supervisor.send(.suspendCancelled(.with { $0.epoch = 3 }))
        try diary.expect("cancelled")
    }

    @Test func doesNotAnswerAPreparationThatIsOver() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let entered = Promise<Bool>()
        let goOn = Promise<Bool>()
        var handlers = diary.handlers()
        handlers.prepareToSuspend = {
            entered.fulfil(true)
            _ = try? goOn.wait()
            return []
        }
        let client = try Client(of: supervisor, handlers: handlers)
        try supervisor.prepare(1)
        _ = try entered.wait()
        // Suspended by force, and woken, while the handler did not answer.
        try supervisor.wake(1, [.request])
        goOn.fulfil(true)
        #expect(try supervisor.expectWakeDone() == 1)
        let ready = supervisor.unexpected.contains {
            if case .readyToSuspend? = $0.body { true } else { false }
        }
        #expect(!ready)
        #expect(diary.all == ["wake 1 request"])
        #expect(client.isConnected)
    }

    @Test func notifiesBeforeExpirationAndTermination() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers())
        try supervisor.send(.backgroundTimeExpiring(.with { $0.remainingMs = 5_000 }))
        try supervisor.send(.willTerminate(.with { $0.budgetMs = 4_000 }))
        try diary.expect("terminate 4.0 seconds")
        #expect(diary.all == ["expiring 5.0 seconds", "terminate 4.0 seconds"])
        #expect(client.isConnected)
    }

    @Test func makesRequestsInsideHandlersWithoutEnteringThemAgain() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = Promise<Client>()
        var handlers = diary.handlers()
        handlers.wake = { wake in
            diary.note("wake \(wake.id) begins")
            if wake.id == 1, let client = try? client.wait() {
                // Another wake arrives before the answer, and waits its turn.
                let task = try? client.beginBackgroundTask("call")
                diary.note("task \(task?.isValid ?? false)")
            }
            diary.note("wake \(wake.id) ends")
        }
        client.fulfil(try Client(of: supervisor, handlers: handlers))
        supervisor.script { message in
            guard case .beginBackgroundTask? = message.body else { return .usual }
            return .unsolicitedFirst([.wake(.sample(2, [.request]))])
        }
        try supervisor.wake(1, [.request])
        try diary.expect("wake 2 ends")
        #expect(
            diary.all == ["wake 1 begins", "task true", "wake 1 ends", "wake 2 begins", "wake 2 ends"])
        #expect(try supervisor.expectWakeDone() == 1)
        #expect(try supervisor.expectWakeDone() == 2)
        try client.wait().close()
    }

    @Test func answersOtherThreadsWhileAHandlerRuns() throws {
        let supervisor = try FakeSupervisor()
        let entered = Promise<Bool>()
        let goOn = Promise<Bool>()
        let client = try Client(
            of: supervisor,
            handlers: .init { _ in
                entered.fulfil(true)
                _ = try? goOn.wait()
            })
        try supervisor.wake(1, [.request])
        _ = try entered.wait()
        #expect(try client.backgroundTimeRemaining() == .limited(.seconds(170)))
        goOn.fulfil(true)
        #expect(try supervisor.expectWakeDone() == 1)
    }

    @Test func callsNoHandlerAfterClose() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = Promise<Client>()
        var handlers = diary.handlers()
        handlers.wake = { wake in
            try? client.wait().close()
            diary.note("wake \(wake.id)")
        }
        client.fulfil(try Client(of: supervisor, handlers: handlers))
        supervisor.script { message in
            guard case .mediaActivity? = message.body else { return .usual }
            return .unsolicitedFirst([.wake(.sample(1, [.request])), .wake(.sample(2, [.request]))])
        }
        // The request may be answered or cut off; both wakes are read with it.
        try? client.wait().mediaActivity()
        try diary.expect("wake 1")
        let error = try thrown { try client.wait().enterBackground() }
        #expect(error.code == .closed)
        #expect(error.description == "The client is closed.")
        #expect(diary.all == ["wake 1"])
    }
}

extension BackgroundTask {
    fileprivate func endIn(_ client: Client) throws(NightbellError) { try client.end(self) }
}

extension FakeSupervisor {
    var hasEntered: Bool { unexpected.contains { $0.body == .backgroundEntered(.init()) } }
    var hasWakeDone: Bool { unexpected.contains { if case .wakeDone? = $0.body { true } else { false } } }
}
