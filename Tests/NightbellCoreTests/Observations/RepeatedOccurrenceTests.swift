import NightbellCore
import Testing

/// Occurrences that have yet to be told, or may have been, when a process or the supervisor ends.
@Suite("Occurrences are told once")
struct RepeatedOccurrenceTests {
    private static let accessory = "/dev/serial/by-id/usb-one"
    private static let characteristic = "/org/bluez/hci0/dev_1/service1/char1"

    private var bench = Bench()
    private let client: ClientID
    private let registration: Registration

    init() throws {
        bench.core.notesChanges = true
        let modes: Modes = [.bluetoothCentral, .externalAccessory]
        client = try bench.register(modes: modes, isLaunchable: true)
        registration = try #require(bench.core.registration(of: client))
        bench.say(.observe(name: "radio", .accessory(Self.accessory)), from: client)
        bench.say(.observe(name: "heart", .characteristic(Self.characteristic)), from: client)
        bench.turn(.fact(.accessories([Self.accessory: .absent])))
        bench.suspend(client)
        bench.turn(.ended(client, .failed))
        bench.pass(.seconds(60))
    }

    private var tellings: [Observation.Telling] {
        bench.core.observationSnapshot(of: client).map(\.telling)
    }

    private func occurrences(_ wake: Wake?) -> [Occurrence] {
        wake.map { bench.actions.observed[$0.observed].map(\.occurrence) } ?? []
    }

    /// Another supervisor takes over. The client's process may have been welcomed, and told its first wake.
    private mutating func restore() throws {
        var old = RecoverySnapshot.Client(id: client, registration: registration, registeredAt: bench.now)
        old.state = (bench.core.row(of: client), bench.core.statistics(of: client))
        old.observations = bench.core.observationSnapshot(of: client)
        old.presence = .welcomed
        var snapshot = RecoverySnapshot()
        snapshot.clients = [old]
        bench.actions.removeAll()
        bench.core = try Supervision(
            settings: bench.core.settings, restoring: snapshot, at: bench.now, into: &bench.actions)
        bench.core.notesChanges = true
        bench.core.endTurn(at: bench.now, into: &bench.actions)
    }

    private mutating func rejoin() -> Wake? {
        bench.turn(.rejoined(client, registration, Bench.key)).wakes.first
    }

    /// The device is attached, which launches the client, and its process is told.
    private mutating func attach() throws -> Wake {
        let present = Presence.present(node: "")
        #expect(bench.turn(.fact(.accessories([Self.accessory: present]))).contains(.launch(client)))
        return try #require(rejoin())
    }

    @Test mutating func thatOfARepeatedWakeStaysOneAfterAnotherDeath() throws {
        let first = try attach()
        #expect(occurrences(first) == [.connected(node: "")])
        try restore()
        // Something else happens before the process says Hello again, and the supervisor dies once more.
        bench.turn(.fact(.characteristic(Self.characteristic, [1])))
        #expect(tellings == [.told(first.wakeID), .pending])
        try restore()
        let repeated = try #require(rejoin())
        #expect(repeated.isRepeated && repeated.wakeID == first.wakeID)
        #expect(occurrences(repeated) == [.connected(node: "")])
        let next = try #require(bench.turn(.timer).wakes.first)
        #expect(next.wakeID == first.wakeID + 1 && occurrences(next) == [.value([1])])
    }

    @Test mutating func itIsToldToTheNextProcessIfThatEnds() throws {
        _ = try attach()
        try restore()
        bench.turn(.ended(client, .failed))
        #expect(tellings.first == .pending)
        bench.pass(.seconds(5))
        let wake = rejoin()
        #expect(occurrences(wake) == [.connected(node: "")])
    }

    /// Only a real one can be lost: the next real one replaces one that was simulated.
    @Test mutating func aSimulatedOneReplacesNoneThatIsToBeTold() throws {
        func simulate(_ occurrence: Occurrence, _ name: String) -> Action? {
            bench.turn(.simulate(occurrence, observation: name, client, Bench.key)).first {
                if case .commandAnswer = $0 { true } else { false }
            }
        }
        bench.turn(.fact(.accessories([Self.accessory: .present(node: "")])))
        let refused = Action.commandAnswer(.illegalState(.launching), Bench.key)
        #expect(simulate(.disconnected, "radio") == refused)
        #expect(simulate(.value([1]), "heart") == .commandAnswer(nil, Bench.key))
        #expect(simulate(.value([2]), "heart") == .commandAnswer(nil, Bench.key))
        let wake = rejoin()
        #expect(occurrences(wake) == [.connected(node: ""), .value([2])])
    }
}
