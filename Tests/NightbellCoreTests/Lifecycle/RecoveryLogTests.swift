import NightbellCore
import Testing

/// Tests what the core writes to a log, and in which order.
@Suite("Recovery log")
struct RecoveryLogTests {
    /// A log that notes what it is told to store.
    private struct Log: RecoveryLog {
        enum Entry: Equatable {
            case state(ClientID)
            case told(UInt64)
            case end(UInt32)
            case offload
            case gone
            case pressed
            case network(UInt64)
            case cleared
            case client(RecoverySnapshot.Presence)
            case clientUpdate(RecoverySnapshot.Presence)
            case noProcess
            case socket
            case reading(ClientID?)
            case tasks(Int)
            case owner(givenUp: Bool, isQuit: Bool)
            case noOwner
            case fetch
            case observations(Int)
            case notification(UInt64)
            case noNotification(UInt64)
            case noRecords
            case offloadsOfGone
            case flush
        }

        struct ClientRecord: ClientRecoveryRecord {
            var presence = RecoverySnapshot.Presence.registered
        }

        var entries: [Entry] = []

        mutating func store(_ row: ClientRow, _ statistics: ClientStatistics, of client: ClientID) {
            entries.append(.state(client))
        }
        mutating func storeToldWake(_ wakeID: UInt64, of client: ClientID) { entries.append(.told(wakeID)) }
        mutating func storeEnd(_ mark: UInt32, of token: SocketToken) { entries.append(.end(mark)) }
        mutating func store(_ offload: RecoverySnapshot.Offload, of token: SocketToken) {
            entries.append(.offload)
        }
        mutating func store(gone: ClientStatistics.CounterWords) { entries.append(.gone) }
        mutating func store(pressedUntil: Instant) { entries.append(.pressed) }
        mutating func store(messageBeingReadOf client: ClientID?) { entries.append(.reading(client)) }
        mutating func store(offloadsOfGone: OffloadTotals.Words) { entries.append(.offloadsOfGone) }
        mutating func store(network: UInt64) { entries.append(.network(network)) }
        mutating func clear(_ client: ClientID) { entries.append(.cleared) }
        mutating func put(_ record: ClientRecord, of client: ClientID) {
            entries.append(.client(record.presence))
        }
        mutating func update(_ record: ClientRecord, of client: ClientID) {
            entries.append(.clientUpdate(record.presence))
        }
        mutating func removeProcess(of client: ClientID) { entries.append(.noProcess) }
        mutating func put(_ socket: RecoverySnapshot.Socket, of token: SocketToken) {
            entries.append(.socket)
        }
        mutating func put(_ tasks: [RecoverySnapshot.Task], of client: ClientID) {
            entries.append(.tasks(tasks.count))
        }
        mutating func put(_ owner: RecoverySnapshot.Owner) {
            entries.append(.owner(givenUp: owner.givenUp > 0, isQuit: owner.isQuit))
        }
        mutating func removeOwner(_ number: UInt64) { entries.append(.noOwner) }
        mutating func put(_ fetch: RecoverySnapshot.Fetch) { entries.append(.fetch) }
        mutating func put(_ notification: RecoverySnapshot.Notification) {
            entries.append(.notification(notification.number))
        }
        mutating func removeNotification(_ number: UInt64) { entries.append(.noNotification(number)) }
        mutating func put(_ observations: [Observation], of client: ClientID) {
            entries.append(.observations(observations.count))
        }
        mutating func removeFetch(_ number: UInt64) {}
        mutating func removeRecords(of client: ClientID) { entries.append(.noRecords) }
        mutating func flush() { entries.append(.flush) }
    }

    private var bench = Bench()
    private let client: ClientID
    private let socket: SocketToken

    init() throws {
        bench.core.notesChanges = true
        client = try bench.register("org.example.phone", isLaunchable: true)
        var offer = SocketOffer(tag: .voip)
        offer.survives = true
        guard case .success(let token) = bench.handOver(offer, from: client) else {
            throw Bench.Unexpected.notAdopted
        }
        socket = token
    }

    /// The entries written since the last turn, without the state of the client.
    private mutating func written() -> [Log.Entry] {
        var log = Log()
        bench.core.persistChanges(in: &log)
        #expect(log.entries.contains(.state(client)))
        return log.entries.filter { $0 != .state(client) }
    }

    @Test("An event that changes nothing writes nothing")
    mutating func nothing() {
        var log = Log()
        bench.core.persistChanges(in: &log)
        bench.core.persistChanges(in: &log)
        let before = log.entries.count
        bench.turn(.frozen(ClientID(rawValue: 7 << 32), epoch: 1))
        bench.core.persistChanges(in: &log)
        #expect(log.entries.count == before)
    }

    @Test("The end of a stream is written with the wake that reports it, however it was found out")
    mutating func ends() {
        bench.suspend(client)
        bench.turn(.fired(socket, .readable))
        #expect(written().isEmpty)
        bench.say(.wakeDone(wakeID: 1), from: client)
        bench.suspend(client)
        var inspection = InspectionResult()
        inspection.rest = .significant([.readable, .peerClosed])
        bench.turn(.inspected(socket, inspection))
        #expect(written() == [.end(2)])
        // The next process has not been told of it.
        bench.turn(.ended(client, .failed))
        #expect(written() == [.told(2), .end(0)])
    }

    @Test("Background tasks are written if they have changed, and only then")
    mutating func tasks() {
        bench.say(.beginBackgroundTask(name: "a"), from: client)
        #expect(written() == [.tasks(1)])
        bench.say(.endBackgroundTask(99), from: client)
        #expect(written().isEmpty)
        bench.say(.endBackgroundTask(1), from: client)
        #expect(written() == [.tasks(0)])
        bench.say(.beginBackgroundTask(name: "b"), from: client)
        bench.core.dropChanges()
        bench.turn(.ended(client, .failed))
        #expect(written() == [.told(0), .tasks(0)])
    }

    @Test("At no moment does an identifier without a client lack the record of its owner")
    mutating func owners() throws {
        let identifier = try #require(bench.core.identifier(of: client))
        var log = Log()
        log.admit(client, Log.ClientRecord(), of: bench.core)
        #expect(log.entries == [.client(.registered), .noOwner, .flush])
        bench.turn(.gone(client))
        log.entries = []
        log.forget(client, identifier, of: bench.core)
        #expect(log.entries == [.gone, .cleared, .owner(givenUp: true, isQuit: false), .noRecords])
    }

    @Test("A client's record says which process it has, before that process may act on it")
    mutating func presence() throws {
        var log = Log()
        let record = Log.ClientRecord()
        log.declare(client, record, of: bench.core)
        #expect(log.entries == [.client(.absent), .noOwner, .flush])
        log.entries = []
        log.launch(client, record)
        #expect(log.entries == [.client(.launched), .flush])
        log.entries = []
        log.admit(client, record, canRepeat: true, of: bench.core)
        #expect(log.entries == [.client(.welcomed), .noOwner, .flush])
        log.entries = []
        log.confirmWelcome(client, record)
        log.makeDormant(client, record)
        #expect(log.entries == [.clientUpdate(.registered), .client(.absent), .noProcess])
        log.entries = []
        log.adopt(socket, try #require(bench.core.snapshot(of: socket)))
        #expect(log.entries == [.end(0), .socket])
    }

    @Test("The message of a client that may be frozen is marked while it is read")
    mutating func reading() {
        var log = Log()
        let isMarkedAwake = log.beginReading(from: client, of: bench.core)
        #expect(!isMarkedAwake && log.entries.isEmpty)
        bench.suspend(client)
        let isMarkedAsleep = log.beginReading(from: client, of: bench.core)
        #expect(isMarkedAsleep)
        log.finishReading()
        #expect(log.entries == [.reading(client), .reading(nil)])
    }

    @Test(
        "A client that was being forgotten is forgotten, and its identifier keeps its owner",
        arguments: [false, true])
    mutating func finishesForgetting(isQuit: Bool) throws {
        let identifier = try #require(ClientIdentifier("org.example.phone"))
        var snapshot = RecoverySnapshot()
        snapshot.clients = [
            RecoverySnapshot.Client(
                id: client, registration: Registration(identifier: identifier, user: 7, modes: .voip),
                registeredAt: bench.now)
        ]
        snapshot.clients[0].ownership = 5
        if isQuit {
            // Recorded when it was quit, and still as in use.
            snapshot.owners = [
                RecoverySnapshot.Owner(
                    identifier: identifier, user: 7, number: 5, givenUp: 0, isQuit: true)
            ]
        }
        var log = Log()
        #expect(log.finishForgetting(&snapshot) == [client] && snapshot.clients.isEmpty)
        #expect(log.entries == [.owner(givenUp: true, isQuit: isQuit), .noRecords])
        #expect(snapshot.owners.map(\.givenUp) == [1])
        let next = try Supervision(
            settings: Settings(), restoring: snapshot, at: bench.now, into: &bench.actions)
        #expect(next.ownership(of: identifier)?.user == 7 && next.clientIDs.isEmpty)
        #expect(next.ownership(of: identifier)?.isQuit == isQuit)
    }
}
