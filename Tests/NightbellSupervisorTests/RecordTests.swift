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
            let read = try ClientRecordBytes(key, client.bytes, [recipe.setting.number: recipe.setting])
            registration.isLaunchable = true
            #expect(read.registration == registration)
            #expect(read.registeredAt == client.registeredAt && read.ownership == 9 && read.wantsWakeWord)
            #expect(read.presence == .welcomed && read.madeProcess == 4_242 && read.launch == [1, 2, 3])
            #expect(read.previous == client.previous)
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
