import Glibc
import LinuxSystem
import Nightbell
import NightbellWire
import SwiftProtobuf
import Testing

/// A client that is woken by one of its sockets detects it by itself; the supervisor's message arrives later.
@Suite struct EarlyWakeTests {
    private let supervisor: FakeSupervisor
    private let page: FakeSupervisor.WakePage
    private let diary = EventLog()

    init() throws {
        supervisor = try FakeSupervisor()
        page = try supervisor.giveWakeWords()
    }

    /// Without the announcements of suspensions.
    private var told: [String] { diary.all.filter { $0 != "prepare" } }

    /// A client that has said that it is ready for the suspension of this epoch.
    private func ready(_ client: Client, epoch: UInt64) throws {
        try supervisor.prepare(epoch)
        #expect(try supervisor.expectReady().epoch == epoch)
    }

    @Test func readsBeforeTheMessageComes() throws {
        let woken = Promise<Wake>()
        let client = try Client(of: supervisor, handlers: .init { woken.fulfil($0) })
        let pipe = try Pipe()
        let socket = try client.handOver(pipe.descriptor, as: .device)
        try ready(client, epoch: 1)
        page.set(epoch: 1)
        try pipe.write()
        let wake = try woken.wait()
        #expect(wake.id == 1)
        #expect(wake.reasons == .socket)
        #expect(wake.sockets.map(\.socket) == [socket])
        #expect(wake.conditions(of: socket) == .readable)
        #expect(wake.budget == .seconds(10))
        #expect(wake.asleepFor > .zero)
        #expect(supervisor.hasWakeDone == false)
    }

    @Test func theMessageIsNotRepeatedButAcknowledged() throws {
        let client = try Client(of: supervisor, handlers: diary.handlers())
        let pipe = try Pipe()
        _ = try client.handOver(pipe.descriptor, as: .device)
        try ready(client, epoch: 1)
        page.set(epoch: 1)
        try pipe.write()
        try diary.expect("wake 1 socket")
        try supervisor.wake(1, [.socket], tokens: [0x1000])
        #expect(try supervisor.expectWakeDone() == 1)
        #expect(told.count == 1)
    }

    @Test func newEventsOfTheMessageAreReported() throws {
        let client = try Client(of: supervisor, handlers: diary.handlers())
        let pipe = try Pipe()
        let other = try Pipe()
        let sockets = try client.handOver([
            .init(pipe.descriptor, as: .device), .init(other.descriptor, as: .device),
        ])
        #expect(sockets.count == 2)
        try ready(client, epoch: 1)
        page.set(epoch: 1)
        try pipe.write()
        try diary.expect("wake 1 socket")
        try supervisor.wake(1, [.socket, .request], tokens: [0x1000, 0x1001])
        #expect(try supervisor.expectWakeDone() == 1)
        #expect(told == ["wake 1 socket", "wake 1 socket+request"])
    }

    @Test func aKeepAliveInTheMessageRunsItsHandler() throws {
        let client = try Client(of: supervisor, handlers: diary.handlers())
        let pipe = try Pipe()
        _ = try client.handOver(pipe.descriptor, as: .device)
        try client.setKeepAliveTimeout(.seconds(600)) { [diary] in diary.note("keep-alive") }
        try ready(client, epoch: 1)
        page.set(epoch: 1)
        try pipe.write()
        try diary.expect("wake 1 socket")
        try supervisor.wake(1, [.socket, .keepAlive], tokens: [0x1000])
        #expect(try supervisor.expectWakeDone() == 1)
        #expect(told == ["wake 1 socket", "wake 1 keep-alive", "keep-alive"])
    }

    /// The supervisor has not thawed it: input belongs to the receiver of the wake.
    @Test(arguments: [UInt64(0), 1, 3]) func anotherEpochInTheWordIsIgnored(_ epoch: UInt64) throws {
        let client = try Client(of: supervisor, handlers: diary.handlers())
        let pipe = try Pipe()
        _ = try client.handOver(pipe.descriptor, as: .device)
        try ready(client, epoch: 2)
        page.set(epoch: epoch)
        try pipe.write()
        try supervisor.wake(7, [.socket], tokens: [0x1000])
        #expect(try supervisor.expectWakeDone() == 7)
        #expect(told == ["wake 7 socket"])
    }

    @Test func theWordIsIgnoredUnlessReady() throws {
        let client = try Client(of: supervisor, handlers: diary.handlers())
        let pipe = try Pipe()
        _ = try client.handOver(pipe.descriptor, as: .device)
        try ready(client, epoch: 1)
        try supervisor.send(.suspendCancelled(.with { $0.epoch = 1 }))
        try diary.expect("cancelled")
        page.set(epoch: 1)
        try pipe.write()
        try supervisor.wake(1, [.request])
        #expect(try supervisor.expectWakeDone() == 1)
        #expect(told == ["cancelled", "wake 1 request"])
    }

    @Test func theNextSuspensionStartsFresh() throws {
        let client = try Client(of: supervisor, handlers: diary.handlers())
        let pipe = try Pipe()
        _ = try client.handOver(pipe.descriptor, as: .device)
        for epoch in UInt64(1)...20 {
            try ready(client, epoch: epoch)
            page.set(epoch: epoch)
            try pipe.write()
            try diary.expect("wake \(epoch) socket")
            try supervisor.wake(epoch, [.socket], tokens: [0x1000])
            #expect(try supervisor.expectWakeDone() == epoch)
            pipe.drain()
        }
        #expect(told.count == 20)
    }

    /// An event that the client's own poll set has seen does not keep its descriptor readable.
    @Test func aSocketThatStaysReadableDoesNotSpin() throws {
        let client = try Client(of: supervisor, handlers: diary.handlers()) { $0.driver = .manual }
        let pipe = try Pipe()
        _ = try client.handOver(pipe.descriptor, as: .device)
        try supervisor.prepare(1)
        #expect(!Poll.wait(client.fileDescriptor, for: .readable, timeoutMilliseconds: 10_000).isEmpty)
        try client.processPending()
        #expect(try supervisor.expectReady().epoch == 1)
        // Not woken, it must not keep running either.
        try pipe.write()
        #expect(!Poll.wait(client.fileDescriptor, for: .readable, timeoutMilliseconds: 10_000).isEmpty)
        try client.processPending()
        #expect(Poll.now(client.fileDescriptor).isEmpty)
        #expect(told == [])
    }

    /// A consumer of the wake sequence gets wakes from the supervisor's messages.
    @Test func aSequenceWaitsForTheMessage() async throws {
        let client = try Client(of: supervisor, handlers: diary.handlers())
        var wakes = client.wakes.makeAsyncIterator()
        let pipe = try Pipe()
        _ = try client.handOver(pipe.descriptor, as: .device)
        try ready(client, epoch: 1)
        page.set(epoch: 1)
        try pipe.write()
        try supervisor.wake(1, [.socket], tokens: [0x1000])
        #expect(await wakes.next()?.id == 1)
        #expect(told == ["wake 1 socket"])
    }

    /// An early event is reported once: later traffic is new, also if the library does not watch.
    @Test func withMoreSocketsThanItWatchesTheMessageCounts() throws {
        let client = try Client(of: supervisor, handlers: diary.handlers())
        let pipe = try Pipe()
        _ = try client.handOver(pipe.descriptor, as: .device)
        try ready(client, epoch: 1)
        page.set(epoch: 1)
        try pipe.write()
        try diary.expect("wake 1 socket")
        try supervisor.wake(1, [.socket], tokens: [0x1000])
        #expect(try supervisor.expectWakeDone() == 1)
        let others = try (0..<17).map { _ in try Pipe() }
        _ = try client.handOver(others.map { .init($0.descriptor, as: .device) })
        try ready(client, epoch: 2)
        try supervisor.wake(2, [.socket], tokens: [0x1000])
        #expect(try supervisor.expectWakeDone() == 2)
        #expect(told == ["wake 1 socket", "wake 2 socket"])
    }

    /// It was suspended by force.
    @Test func afterASuspensionByForceTheMessageCounts() throws {
        let client = try Client(of: supervisor, handlers: diary.handlers())
        let pipe = try Pipe()
        _ = try client.handOver(pipe.descriptor, as: .device)
        try ready(client, epoch: 1)
        page.set(epoch: 1)
        try pipe.write()
        try diary.expect("wake 1 socket")
        try supervisor.wake(1, [.socket], tokens: [0x1000])
        try supervisor.wake(2, [.socket], tokens: [0x1000])
        #expect(try supervisor.expectWakeDone() == 1)
        #expect(try supervisor.expectWakeDone() == 2)
        #expect(told == ["wake 1 socket", "wake 2 socket"])
    }

    /// Only the supervisor can tell the socket then.
    @Test func aClosedDescriptorWaitsForTheMessage() throws {
        let client = try Client(of: supervisor, handlers: diary.handlers())
        let pipe = try Pipe()
        let ends = [dup(pipe.descriptor), dup(pipe.descriptor)]
        _ = try client.handOver(ends.map { .init($0, as: .device) })
        // Its number now belongs to a file that cannot be polled; a closed number could be reused at any
        // time.
        let directory = open("/tmp", O_RDONLY | O_CLOEXEC)
        #expect(dup2(directory, ends[1]) == ends[1])
        close(directory)
        try ready(client, epoch: 1)
        page.set(epoch: 1)
        try pipe.write()
        try supervisor.wake(1, [.socket], tokens: [0x1001])
        #expect(try supervisor.expectWakeDone() == 1)
        #expect(told == ["wake 1 socket"])
        for end in ends { close(end) }
    }

    @Test func aDescriptorHandedOverTwiceWaitsForTheMessage() throws {
        let client = try Client(of: supervisor, handlers: diary.handlers())
        let pipe = try Pipe()
        _ = try client.handOver(pipe.descriptor, as: .device)
        _ = try client.handOver(pipe.descriptor, as: .device)
        try ready(client, epoch: 1)
        page.set(epoch: 1)
        try pipe.write()
        try supervisor.wake(1, [.socket], tokens: [0x1000, 0x1001])
        #expect(try supervisor.expectWakeDone() == 1)
        #expect(told == ["wake 1 socket"])
    }

    /// Its descriptor stays open and becomes readable, which the client must ignore.
    @Test func aReleasedSocketIsNotWatched() throws {
        let client = try Client(of: supervisor, handlers: diary.handlers()) { $0.driver = .manual }
        let pipe = try Pipe()
        let other = try Pipe()
        let socket = try client.handOver(pipe.descriptor, as: .device)
        _ = try client.handOver(other.descriptor, as: .device)
        try supervisor.prepare(1)
        #expect(!Poll.wait(client.fileDescriptor, for: .readable, timeoutMilliseconds: 10_000).isEmpty)
        try client.processPending()
        #expect(try supervisor.expectReady().epoch == 1)
        try supervisor.send(.suspendCancelled(.with { $0.epoch = 1 }))
        try client.release(socket)
        try client.processPending()
        try pipe.write()
        #expect(Poll.now(client.fileDescriptor).isEmpty)
    }
}
