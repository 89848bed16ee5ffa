import Keeper
import Launching
import NightbellCore
import NightbellWire
import SwiftProtobuf
import Testing

@testable import NightbellSupervisor

@Suite("Records of a worker")
struct RecordTests {
    private let key = RecordKey(.clients, id: 7)

    /// All members of a fetch's state have other values than in a new one.
    private func fetchState() throws -> FetchState {
        var scheduler = FetchScheduler(Settings.Fetch())
        let start = Instant(nanoseconds: 1 << 45)
        scheduler.change(WallClock(offset: .seconds(20_000 * 86_400)), at: start)
        scheduler.setInterval(.atLeast(.seconds(7_200)), at: 0, isWaiting: true, at: start)
        for day in 0..<5 {
            let opening = start + .seconds(day * 86_400)
            scheduler.noteOpening(of: 0, at: opening)
            scheduler.noteLeaving(of: 0, at: opening + .seconds(60))
            scheduler.begin(0, of: 1_000, at: opening + .seconds(4_000))
            scheduler.end(0, of: 1_000, .failed, took: .seconds(20), budget: .seconds(30))
        }
        scheduler.begin(0, of: 1_000, at: start + .seconds(5 * 86_400))
        scheduler.end(0, of: 1_000, nil, took: .seconds(30), budget: .seconds(30))
        scheduler.begin(0, of: 1_000, at: start + .seconds(5 * 86_400 + 60))
        scheduler.interrupt(0, of: 1_000)
        let state = try #require(scheduler.state(at: 0))
        #expect(state.habit.observedDays == 5 && state.score != FetchScore() && state.fetchesOnDay == 2)
        #expect(state.score.overruns == 1 && state.score.wasInterrupted)
        #expect(state.lastFetch != nil && state.lastOpening != nil)
        return state
    }

    @Test("The state of a client's fetches is whole in the file, also after another start of the machine")
    func fetches() throws {
        let state = try fetchState()
        // Shifts are the distance from elapsed time to 1970. After another start of the machine elapsed time
        // is another one.
        let before = Duration.seconds(1_700_000_000)
        let after = before + .seconds(3_600)
        let stored = try StoredFetch(serializedBytes: StoredFetch(state, shift: before).record)
        #expect(FetchState(stored, shift: before) == state)
        let read = try #require(FetchState(stored, shift: after))
        #expect(read.habit == state.habit && read.score == state.score && read.interval == state.interval)
        #expect(read.day == state.day && read.fetchesOnDay == state.fetchesOnDay)
        #expect(read.lastFetch == state.lastFetch.map { $0 - .seconds(3_600) })
        #expect(read.lastOpening == state.lastOpening.map { $0 - .seconds(3_600) })
        #expect(read.leftForeground == state.leftForeground - .seconds(3_600))
        for interval in [FetchInterval.never, .minimum] {
            var other = FetchState(interval: interval, leftForeground: Instant(nanoseconds: 5))
            #expect(FetchState(StoredFetch(other, shift: before), shift: before) == other)
            other.habit = state.habit
            #expect(FetchState(StoredFetch(other, shift: before), shift: before) == other)
        }
        var damaged = stored
        damaged.habit.removeLast()
        #expect(FetchState(damaged, shift: before) == nil)
    }

    @Test("Times of fetches that would be in the future are now")
    func fetchesOfTheFuture() throws {
        let state = try fetchState()
        let early = Instant(nanoseconds: 1 << 40)
        let clamped = state.clamped(to: early)
        #expect(clamped.lastFetch == early && clamped.lastOpening == early && clamped.leftForeground == early)
        #expect(
            clamped.habit == state.habit && clamped.score == state.score && clamped.interval == state.interval
        )
        #expect(state.clamped(to: Instant(nanoseconds: 1 << 60)) == state)
        let empty = FetchState(interval: .minimum, leftForeground: early)
        #expect(empty.clamped(to: early) == empty)
    }

    @Test("A fetch that is going on is recorded for the next worker")
    func runningFetch() throws {
        var state = try fetchState()
        state.isSimulated = true
        let run = Supervision.FetchRun(
            wakeID: 9, began: Instant(nanoseconds: 1 << 45), until: Instant(nanoseconds: 1 << 46))
        let key = RecordKey(.fetches, id: 7)
        for run in [run, nil] {
            let fetch = RecoverySnapshot.Fetch(ownership: 7, state: state, run: run)
            #expect(try FetchRecordBytes.fetch(key, FetchRecordBytes.bytes(of: fetch)) == fetch)
        }
    }

    @Test("A client's record has all of it")
    func client() throws {
        let identity = ProcessIdentity(user: 33, group: 34, otherGroups: [4, 24])
        let limits = [ResourceLimit(.core, soft: 0, hard: .max)]
        var settings = LaunchSettings()
        // The second differs from the first by its directory and variables.
        var recipes = ["/", "/tmp"].map { directory in
            LaunchRecipe(
                LaunchSpecification(
                    arguments: ["/bin/phone", "", "--user=é"], directory: directory,
                    environment: [
                        "PATH": String(repeating: "/usr/bin:", count: 20), "HOME": directory,
                        "DIRECTORY \(directory)": "",
                    ],
                    limits: limits, fileModeMask: 0o027, output: "/dev/null"),
                as: identity, isRecorded: true)
        }
        let specifications = recipes.map(\.specification)
        for index in recipes.indices { _ = recipes[index].share(&settings) }
        #expect(recipes[0].setting === recipes[1].setting)

        for (recipe, specification) in zip(recipes, specifications) {
            var registration = Registration(
                identifier: try #require(ClientIdentifier("org.example.phone")), user: 1_000,
                modes: [.voip])
            registration.wakeLimitPolicy = .terminate
            registration.exitsOnSuspend = true
            var client = ClientRecordBytes(
                registration: registration, registeredAt: Instant(nanoseconds: 1 << 40), ownership: 9)
            client.presence = .welcomed
            client.madeProcess = 4_242
            client.wantsWakeWord = true
            client.launch = [1, 2, 3]
            client.previous = PreviousProcess(
                wasLaunched: true, isAttached: true,
                sockets: [SocketToken(rawValue: 1 << 32 | 5), SocketToken(rawValue: 6)])
            client.recipe = recipe
            client.launchProblem = "/program: No such file or directory"
            let read = try ClientRecordBytes(key, client.bytes, [recipe.setting.number: recipe.setting])
            registration.isLaunchable = true
            #expect(read.registration == registration)
            #expect(read.registeredAt == client.registeredAt && read.ownership == 9 && read.wantsWakeWord)
            #expect(read.presence == .welcomed && read.madeProcess == 4_242 && read.launch == [1, 2, 3])
            #expect(read.previous == client.previous && read.launchProblem == client.launchProblem)
            #expect(read.recipe?.specification == specification)
            #expect(read.recipe?.content.identity == identity)
            #expect(read.bytes == client.bytes)
        }
    }

    /// The version that wrote it may have accepted more.
    @Test("An observation of nothing valid is left out, and the others stay")
    func invalidObservation() throws {
        let observations = ["/org/bluez/hci0/dev_1", "/a b", "/org/bluez/hci0/dev_2"].map {
            Observation(name: $0, .bluetoothDevice($0))
        }
        let read = try ObservationRecordBytes.observations(
            key, ObservationRecordBytes.bytes(of: observations))
        #expect(read == [observations[0], observations[2]])
    }

    @Test("A record that a newer program made is refused")
    func newer() throws {
        var bytes = OwnerRecordBytes.bytes(
            of: .init(
                identifier: try #require(ClientIdentifier("a")), user: 1, number: 7, givenUp: 0, isQuit: true)
        )
        #expect(try OwnerRecordBytes.owner(key, bytes).isQuit)
        // Field 100, a number.
        bytes += [0xA0, 0x06, 0x01]
        let error = try #require(throws: RecordError.self) { try OwnerRecordBytes.owner(key, bytes) }
        #expect(
            error.description
                == "the record 7 of kind 16 has fields that this program does not know: it is older than the writer"
        )
    }

    @Test("A damaged record is refused")
    func damaged() throws {
        let socket = RecoverySnapshot.Socket(
            token: SocketToken(rawValue: 7), owner: ClientID(rawValue: 1 << 32), tag: .listener,
            isStream: true, request: 300, index: 252, survives: true)
        let bytes = SocketRecordBytes(socket: socket, name: "proxy").bytes
        let read = try SocketRecordBytes(key, bytes)
        let general = try StoredSocket(serializedBytes: bytes)
        #expect(try general.serializedBytes() == bytes, "as the general encoder's")
        #expect(general.name == "proxy" && general.index == 252 && general.request == 300)
        #expect(read.socket.token == socket.token && read.socket.owner == socket.owner)
        #expect(read.socket.tag == .listener && read.socket.isStream && read.socket.survives)
        #expect(read.socket.request == 300 && read.socket.index == 252 && read.name == "proxy")
        #expect(throws: RecordError.self) { try SocketRecordBytes(key, Array(bytes.dropLast())) }
        #expect(throws: RecordError.self) { try SocketRecordBytes(key, []) }
        #expect(throws: RecordError.self) { try ClientRecordBytes(key, [], [:]) }
    }
}
