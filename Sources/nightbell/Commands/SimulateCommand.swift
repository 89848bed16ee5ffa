import ArgumentParser
import Nightbell

struct SimulateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "simulate", abstract: "Treats a client as if something had happened to the machine.",
        discussion: """
            network-change: the client is told that the machine has another network, and which of its sockets do not work.
            sleep: its keep-alive handler runs, as before a sleep of the machine.
            unlock: a client that waits for its user is launched.
            fetch: a client in the background, suspended or not, is told to fetch; with --launch a dormant one is launched.
            location: the machine has moved to --moved LATITUDE,LONGITUDE, or has entered or left the region that the client \
            observes under the name given by --observation.
            device: an accessory or a Bluetooth device that it observes under that name is connected or disconnected, or a \
            characteristic has a new --value. An accessory is connected as its --node, such as /dev/ttyACM0.

            For the owner of the client, and root. nightbell watch shows the first four as simulated, and the others as observed, \
            with the word simulated.
            """)

    @Argument(help: "What happens: \(Self.names.joined(separator: ", ")).", transform: Self.event)
    var event: Event
    @Flag(help: "With fetch: launch a client that has no process.")
    var launch = false
    @Option(help: "With location and device: the name of the client's observation.")
    var observation: String?
    @Option(
        help: "With location: where the machine is, as LATITUDE,LONGITUDE in degrees.",
        transform: Self.position)
    var moved: Occurrence.Position?
    @Flag(help: "What has happened to a region or a device.")
    var happening: Happening?
    @Option(help: "With --connected: the device node of an accessory.")
    var node: String?
    @Option(
        help: "With device: the new value of a characteristic, in hexadecimal digits.",
        transform: Self.bytes)
    var value: [UInt8]?
    @OptionGroup var target: Target

    enum Event {
        case machine(SimulatedEvent)
        case location
        case device
    }

    enum Happening: String, EnumerableFlag {
        case entered, exited, connected, disconnected
    }

    /// Those with a name of their own; the other one is an option of `fetch`.
    private static let names =
        SimulatedEvent.allCases.filter { $0 != .fetchLaunch }.map(\.rawValue) + ["location", "device"]

    private static func event(_ text: String) throws -> Event {
        switch text {
        case "location": return .location
        case "device": return .device
        default:
            if names.contains(text), let event = SimulatedEvent(rawValue: text) { return .machine(event) }
            throw ValidationError("'\(text)' is not one of them")
        }
    }

    private static func position(_ text: String) throws -> Occurrence.Position {
        let numbers = text.split(separator: ",").map { Double($0) }
        guard numbers.count == 2, let latitude = numbers[0], let longitude = numbers[1] else {
            throw ValidationError("'\(text)' is not LATITUDE,LONGITUDE")
        }
        return Occurrence.Position(latitude: latitude, longitude: longitude, accuracy: 0)
    }

    private static func bytes(_ text: String) throws -> [UInt8] {
        var bytes: [UInt8] = []
        var rest = text[...]
        while !rest.isEmpty {
            guard rest.count >= 2, let byte = UInt8(rest.prefix(2), radix: 16) else {
                throw ValidationError("'\(text)' is no even number of hexadecimal digits")
            }
            bytes.append(byte)
            rest = rest.dropFirst(2)
        }
        return bytes
    }

    /// The occurrences that the options describe.
    private var kinds: [Occurrence.Kind] {
        var kinds: [Occurrence.Kind] = []
        switch (event, happening) {
        case (.location, .entered?): kinds.append(.entered)
        case (.location, .exited?): kinds.append(.exited)
        case (.device, .connected?): kinds.append(.connected(node: node ?? ""))
        case (.device, .disconnected?): kinds.append(.disconnected)
        default: break
        }
        if case .location = event, let moved { kinds.append(.moved(moved)) }
        if case .device = event, let value { kinds.append(.value(value)) }
        return kinds
    }

    func validate() throws {
        switch event {
        case .machine(let event):
            guard !launch || event == .fetch else { throw ValidationError("--launch goes with fetch.") }
            guard observation == nil, moved == nil, happening == nil, value == nil, node == nil else {
                throw ValidationError("--observation goes with location and device.")
            }
        case .location, .device:
            guard !launch else { throw ValidationError("--launch goes with fetch.") }
            let given = [moved != nil, happening != nil, value != nil].count { $0 }
            guard observation != nil, given == 1, kinds.count == 1 else {
                throw ValidationError(
                    """
                    Give --observation, and with location one of --moved, --entered and --exited, with device one of \
                    --connected, --disconnected and --value.
                    """)
            }
            guard node == nil || happening == .connected else {
                throw ValidationError("--node goes with --connected.")
            }
        }
    }

    func run() throws {
        try target.act("simulate") { administration, client throws(NightbellError) in
            switch event {
            case .machine(let event):
                try administration.simulate(launch ? .fetchLaunch : event, client)
            case .location, .device:
                for kind in kinds {
                    try administration.simulate(Occurrence(observation ?? "", kind), client)
                }
            }
        }
    }
}
