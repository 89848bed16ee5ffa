import ArgumentParser
import Nightbell

struct SimulateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "simulate", abstract: "Treats a client as if something had happened to the machine.",
        discussion: """
            network-change: the client is told that the machine has another network, and which of its sockets do not work.
            sleep: its keep-alive handler runs, as before a sleep of the machine.
            unlock: a client that waits for its user is launched.

            For the owner of the client, and root. nightbell watch shows it as simulated.
            """)

    @Argument(
        help: "What happens: \(SimulatedEvent.allCases.map(\.rawValue).joined(separator: ", ")).",
        transform: Self.event)
    var event: SimulatedEvent
    @OptionGroup var target: Target

    private static func event(_ text: String) throws -> SimulatedEvent {
        if let event = SimulatedEvent(rawValue: text) { return event }
        throw ValidationError("'\(text)' is not one of them")
    }

    func run() throws {
        try target.act("simulate") { administration, client throws(NightbellError) in
            try administration.simulate(event, client)
        }
    }
}
