import LinuxSystem
import Nightbell
import NightbellWire
import SwiftProtobuf
import Testing

@Suite struct ManualDrivingTests {
    /// Runs a program's event loop until a condition holds.
    private func drive(
        _ client: Client, until isDone: () -> Bool, sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let deadline = BootClock.now() + 20_000_000_000
        while !isDone() {
            let left = CInt(clamping: (deadline - BootClock.now()) / 1_000_000)
            try #require(left > 0, "the condition did not hold", sourceLocation: sourceLocation)
            _ = Poll.wait(client.fileDescriptor, for: .readable, timeoutMilliseconds: left)
            try client.processPending()
        }
    }

    @Test func runsHandlersOnlyWhenDriven() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers()) { $0.driver = .manual }
        #expect(Poll.now(client.fileDescriptor).isEmpty)
        try supervisor.wake(1, [.request])
        #expect(Poll.wait(client.fileDescriptor, for: .readable, timeoutMilliseconds: 20_000) == .readable)
        #expect(diary.all.isEmpty)
        try client.processPending()
        #expect(diary.all == ["wake 1 request"])
        #expect(try supervisor.expectWakeDone() == 1)
        #expect(Poll.now(client.fileDescriptor).isEmpty)
        // No message waits: it returns.
        try client.processPending()
    }

    @Test func keepsMessagesReadDuringARequest() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers()) { $0.driver = .manual }
        supervisor.script { message in
            guard case .mediaActivity? = message.body else { return .usual }
            return .unsolicitedFirst([.wake(.sample(1, [.request]))])
        }
        try client.mediaActivity()
        #expect(diary.all.isEmpty)
        // The socket is empty now; the descriptor is readable all the same.
        #expect(Poll.now(client.fileDescriptor) == .readable)
        try client.processPending()
        #expect(diary.all == ["wake 1 request"])
        #expect(Poll.now(client.fileDescriptor).isEmpty)
    }

    @Test func doesNothingInsideAHandler() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = Promise<Client>()
        var handlers = diary.handlers()
        handlers.wake = { wake in
            diary.note("begin \(wake.id)")
            try? client.wait().mediaActivity()
            try? client.wait().processPending()
            diary.note("end \(wake.id)")
        }
        client.fulfil(try Client(of: supervisor, handlers: handlers) { $0.driver = .manual })
        supervisor.script { message in
            guard case .mediaActivity? = message.body else { return .usual }
            return diary.all.count > 1 ? .usual : .unsolicitedFirst([.wake(.sample(2, [.request]))])
        }
        try supervisor.wake(1, [.request])
        try drive(client.wait()) { diary.all.count == 4 }
        #expect(diary.all == ["begin 1", "end 1", "begin 2", "end 2"])
    }

    @Test func reconnectsThroughTheSameDescriptor() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers()) { $0.driver = .manual }
        let pipe = try Pipe()
        _ = try client.handOver(pipe.descriptor, as: .device, name: "pipe")
        let descriptor = client.fileDescriptor
        supervisor.stop()
        try drive(client) { diary.all.contains("lost connectionLost") }
        try supervisor.start()
        try drive(client) { diary.all.contains("reconnected") }
        #expect(client.fileDescriptor == descriptor)
        #expect(client.isConnected)
        let name = try supervisor.expect("HandOver on the second connection") { received in
            guard received.connection == 2, case .handOver(let body)? = received.message.body else {
                return nil as String?
            }
            return body.sockets.first?.name
        }
        #expect(name == "pipe")
        #expect(Poll.now(client.fileDescriptor).isEmpty)
    }

    @Test func reportsThatItIsClosed() throws {
        let supervisor = try FakeSupervisor()
        let client = try Client(of: supervisor) { $0.driver = .manual }
        client.close()
        #expect(try thrown { try client.processPending() }.code == .closed)
    }
}

@Suite struct WakesTests {
    @Test func wakesAreDoneWhenTheConsumerAsksForTheNext() async throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers())
        var wakes: Client.Wakes.AsyncIterator? = client.wakes.makeAsyncIterator()
        try supervisor.wake(1, [.request])
        let first = await wakes?.next()
        #expect(first?.id == 1)
        // A wake's handlers run first, so by now it is certain that the wake was not acknowledged.
        try client.mediaActivity()
        #expect(!supervisor.hasWakeDone)
        try supervisor.wake(2, [.request])
        let second = await wakes?.next()
        #expect(second?.id == 2)
        #expect(try supervisor.expectWakeDone() == 1)
        wakes = nil
        #expect(try supervisor.expectWakeDone() == 2)
        // With the consumer gone, wakes are done when the handlers are.
        try supervisor.wake(3, [.request])
        #expect(try supervisor.expectWakeDone() == 3)
        #expect(diary.all == ["wake 1 request", "wake 2 request", "wake 3 request"])
    }

    @Test func keepsWakesFromTheMomentTheSequenceIsMade() async throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers())
        let wakes = client.wakes
        try supervisor.wake(1, [.request])
        try supervisor.wake(2, [.request])
        try diary.expect("wake 2 request")
        var seen: [UInt64] = []
        for await wake in wakes {
            seen.append(wake.id)
            if wake.id == 2 { break }
        }
        #expect(seen == [1, 2])
        #expect(try supervisor.expectWakeDone() == 1)
    }

    @Test func cancellationLeavesNoWakeUndone() async throws {
        let supervisor = try FakeSupervisor()
        let client = try Client(of: supervisor)
        let wakes = client.wakes
        let taken = Promise<Bool>()
        let task = Task {
            var count = 0
            for await _ in wakes {
                count += 1
                taken.fulfil(true)
                // Cancelled here or while it waits for the next one.
                if Task.isCancelled { break }
            }
            return count
        }
        try supervisor.wake(1, [.request])
        while !taken.isFulfilled { await Task.yield() }
        task.cancel()
        #expect(await task.value == 1)
        #expect(try supervisor.expectWakeDone() == 1)
        try supervisor.wake(2, [.request])
        #expect(try supervisor.expectWakeDone() == 2)
    }

    @Test func hasOneConsumerAtATime() async throws {
        let supervisor = try FakeSupervisor()
        let client = try Client(of: supervisor)
        var first: Client.Wakes? = client.wakes
        var second = client.wakes.makeAsyncIterator()
        #expect(await second.next() == nil)
        withExtendedLifetime(first) {}
        first = nil
        var third = client.wakes.makeAsyncIterator()
        try supervisor.wake(1, [.request])
        #expect(await third.next()?.id == 1)
    }

    @Test func endsWithTheClient() async throws {
        let supervisor = try FakeSupervisor()
        let client = try Client(of: supervisor)
        var wakes = client.wakes.makeAsyncIterator()
        startThread { client.close() }
        #expect(await wakes.next() == nil)
        #expect(await wakes.next() == nil)
        #expect(await client.wakes.first { _ in true } == nil)
    }

    @Test func endsWhenTheConnectionIsNotMadeAgain() async throws {
        let supervisor = try FakeSupervisor()
        let client = try Client(of: supervisor) { $0.reconnects = false }
        var wakes = client.wakes.makeAsyncIterator()
        supervisor.hangUp()
        #expect(await wakes.next() == nil)
    }
}
