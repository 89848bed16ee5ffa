import NightbellCore
import Testing

/// Pushes and transfers of clients that are known by their manifests alone.
@Suite("Declared clients without a process")
struct DeclaredLaunchTests {
    private func registration(isDeclared: Bool = true) throws -> Registration {
        let identifier = try #require(ClientIdentifier("org.test.reader"))
        var registration = Registration(identifier: identifier, user: 1_000, modes: [])
        registration.isLaunchable = true
        registration.isDeclared = isDeclared
        return registration
    }

    private func push(_ number: UInt64, _ urgency: PushUrgency? = .normal) throws -> Event {
        .fact(
            .pushes(
                WaitingPushes(
                    of: 1_000, try registration().identifier, number: number, urgency: urgency)))
    }

    private func end(_ number: UInt64 = 1, of session: String = "s") throws -> Event {
        .fact(
            .transfers(
                EndedTransfers(
                    of: 1_000, try registration().identifier, session: session, number: number)))
    }

    private func client(_ bench: Bench) throws -> ClientID {
        try #require(bench.core.client(named: try registration().identifier))
    }

    private func launched(_ actions: [Action]) -> Bool {
        actions.contains { if case .launch = $0 { true } else { false } }
    }

    /// The wakes with which its process starts.
    private func start(_ bench: inout Bench) throws -> [Wake] {
        bench.turn(.rejoined(try client(bench), try registration(), Bench.key)).wakes
    }

    /// One that was launched for a push, and handles it.
    private func handling(_ bench: inout Bench) throws -> ClientID {
        #expect(launched(bench.turn(.declare(try registration(), notBefore: nil), try push(1))))
        #expect(try start(&bench).map(\.reasons) == [.push])
        let client = try client(bench)
        bench.say(.observe(name: "nightbell.pushes", .pushes), from: client)
        #expect(bench.answer == .done)
        return client
    }

    private func finish(_ client: ClientID, _ bench: inout Bench) {
        bench.say(.pushDone(wakeID: bench.lastWakeID, .newData), from: client)
        bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
        bench.turn(.ended(client, .succeeded))
    }

    // MARK: Without a record

    @Test func aPushLaunchesIt() throws {
        var bench = Bench()
        let client = try handling(&bench)
        #expect(bench.core.observationSnapshot(of: client).count == 1)
    }

    @Test func theEndsOfItsSessionsLaunchIt() throws {
        var bench = Bench()
        #expect(launched(bench.turn(.declare(try registration(), notBefore: nil), try end())))
        #expect(bench.turn(try end(), try end(of: "other"), try push(1)).wakes.isEmpty)
        let wakes = try start(&bench)
        #expect(wakes.map(\.reasons) == [[.transfer, .push]])
        #expect(wakes.map(\.observed.count) == [3])
    }

    @Test func aPushThatIsNotUrgentWaitsForItsMoment() throws {
        var bench = Bench()
        bench.turn(.fact(.power(isOnBattery: true)))
        let declaration = Event.declare(try registration(), notBefore: nil)
        #expect(!launched(bench.turn(declaration, try push(1, .veryLow))))
        #expect(!launched(bench.pass(.seconds(86_400))))
        #expect(launched(bench.turn(.fact(.power(isOnBattery: false)))))
    }

    @Test func aPushThatHasGoneLaunchesNothing() throws {
        var bench = Bench()
        bench.turn(.fact(.power(isOnBattery: true)))
        bench.turn(.declare(try registration(), notBefore: nil), try push(1, .veryLow))
        bench.turn(try push(2, nil))
        #expect(!launched(bench.turn(.fact(.power(isOnBattery: false)))))
    }

    @Test func itsUserHasQuitIt() throws {
        var bench = Bench()
        let client = try handling(&bench)
        bench.command(.quit, client)
        bench.turn(.ended(client, .succeeded))
        #expect(!launched(bench.turn(.declare(try registration(), notBefore: nil), try push(2))))
        #expect(bench.core.client(named: try registration().identifier) == nil)
    }

    // MARK: A process that is about to reconnect

    @Test func aProcessThatReconnectsIsNotLaunchedAgain() throws {
        var bench = Bench()
        let until = bench.now + .seconds(5)
        #expect(!launched(bench.turn(.declare(try registration(), notBefore: until), try end())))
        #expect(!launched(bench.pass(.seconds(4))))
        let wakes = bench.turn(.registration(try registration(), Bench.key)).wakes
        #expect(wakes.map(\.reasons) == [.transfer])
        #expect(!launched(bench.pass(.seconds(60))))
    }

    @Test("One that is to be launched after a pause is, also by another supervisor")
    func pauseBeforeLaunch() throws {
        var bench = Bench()
        bench.core.notesChanges = true
        let until = bench.now + .seconds(5)
        let declaration = Event.declare(try registration(), notBefore: until, reasons: .launched)
        #expect(!launched(bench.turn(declaration)))
        let client = try client(bench)
        var old = RecoverySnapshot.Client(
            id: client, registration: try registration(), registeredAt: bench.now)
        old.state = (bench.core.row(of: client), bench.core.statistics(of: client))
        old.presence = .absent
        var snapshot = RecoverySnapshot()
        snapshot.clients = [old]
        #expect(launched(bench.pass(.seconds(5))))
        bench = Bench()
        bench.core = try Supervision(
            settings: bench.core.settings, restoring: snapshot, at: bench.now, into: &bench.actions)
        #expect(!launched(bench.turn()))
        #expect(launched(bench.pass(.seconds(5))))
    }

    @Test("One that has a record is launched after the pause as well")
    func pauseWithRecord() throws {
        var bench = Bench()
        bench.turn(.fact(.power(isOnBattery: true)))
        bench.turn(.declare(try registration(), notBefore: nil), try push(1, .veryLow))
        let until = bench.now + .seconds(60)
        let declaration = Event.declare(try registration(), notBefore: until, reasons: .launched)
        #expect(!launched(bench.turn(declaration)))
        #expect(!launched(bench.pass(.seconds(60) - .nanoseconds(1))))
        #expect(launched(bench.pass(.nanoseconds(1))))
        #expect(try start(&bench).map(\.reasons) == [[.launched, .push]])
        // It runs, and nothing launches another process.
        bench.turn(.declare(try registration(), notBefore: bench.now, reasons: .launched))
        #expect(!launched(bench.pass(.seconds(60))))
    }

    @Test("One that is to be launched at once is")
    func launchWithoutPause() throws {
        var bench = Bench()
        #expect(launched(bench.turn(.declare(try registration(), notBefore: nil, reasons: .launched))))
        #expect(try start(&bench).map(\.reasons) == [.launched])
    }

    @Test func aProcessThatDoesNotReconnectIsLaunched() throws {
        var bench = Bench()
        let until = bench.now + .seconds(5)
        bench.turn(.declare(try registration(), notBefore: until), try end())
        #expect(!launched(bench.pass(.seconds(5) - .nanoseconds(1))))
        #expect(launched(bench.pass(.nanoseconds(1))))
    }

    // MARK: After its end

    @Test func oneThatHasEndedWellIsLaunchedAgain() throws {
        var bench = Bench()
        let client = try handling(&bench)
        finish(client, &bench)
        #expect(bench.core.state(of: client) == .dormant)
        #expect(!launched(bench.pass(.seconds(600))))
        #expect(launched(bench.turn(try push(2))))
        #expect(try start(&bench).map(\.reasons) == [.push])
    }

    @Test func oneThatIsNotDeclaredIsForgotten() throws {
        var bench = Bench()
        bench.turn(.registration(try registration(isDeclared: false), Bench.key))
        let client = try client(bench)
        bench.say(.observe(name: "nightbell.pushes", .pushes), from: client)
        bench.turn(.ended(client, .succeeded))
        #expect(bench.core.client(named: try registration().identifier) == nil)
    }

    @Test func oneThatEndsWellIsNotLaunchedMoreOftenThanItIsWoken() throws {
        var bench = Bench { $0.push.perHour = 1 }
        let client = try handling(&bench)
        finish(client, &bench)
        #expect(!launched(bench.turn(try push(2))))
        #expect(!launched(bench.pass(.seconds(3_590))))
        #expect(launched(bench.pass(.seconds(10))))
    }

    @Test func aMessageThatComesAtItsEndLaunchesItAgain() throws {
        var bench = Bench()
        let client = try handling(&bench)
        bench.turn(try push(2))
        #expect(launched(bench.turn(.ended(client, .succeeded))))
    }

    @Test func oneThatFailsTooOftenWaitsForTheNextMessage() throws {
        var bench = Bench { $0.launches.relaunches = 0 }
        let client = try handling(&bench)
        bench.turn(.ended(client, .failed))
        #expect(!launched(bench.pass(.seconds(3_000))))
        #expect(launched(bench.turn(try push(2))))
    }

    @Test func anotherSupervisorKeepsIt() throws {
        var bench = Bench()
        bench.core.notesChanges = true
        let client = try handling(&bench)
        finish(client, &bench)
        let registration = try #require(bench.core.registration(of: client))
        #expect(registration.isDeclared)
        var old = RecoverySnapshot.Client(id: client, registration: registration, registeredAt: bench.now)
        old.state = (bench.core.row(of: client), bench.core.statistics(of: client))
        old.observations = bench.core.observationSnapshot(of: client)
        old.presence = .absent
        var snapshot = RecoverySnapshot()
        snapshot.clients = [old]
        bench.core = try Supervision(
            settings: bench.core.settings, restoring: snapshot, at: bench.now, into: &bench.actions)
        bench.turn()
        #expect(bench.core.state(of: client) == .dormant)
        #expect(launched(bench.turn(try push(2))))
    }
}
