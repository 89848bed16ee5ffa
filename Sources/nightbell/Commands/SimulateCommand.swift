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

            For the owner of the client, and root. nightbell watch shows it as simulated.
            """)

    @Argument(help: "What happens: \(Self.names.joined(separator: ", ")).", transform: Self.event)
    var event: SimulatedEvent
    @Flag(help: "With fetch: launch a client that has no process.")
    var launch = false
    @OptionGroup var target: Target

    /// Those with a name of their own; the other one is an option of `fetch`.
    private static let names = SimulatedEvent.allCases.filter { $0 != .fetchLaunch }.map(\.rawValue)

    private static func event(_ text: String) throws -> SimulatedEvent {
        if names.contains(text), let event = SimulatedEvent(rawValue: text) { return event }
        throw ValidationError("'\(text)' is not one of them")
    }

    func validate() throws {
        guard !launch || event == .fetch else { throw ValidationError("--launch goes with fetch.") }
    }

    func run() throws {
        let event = launch ? SimulatedEvent.fetchLaunch : event
        try target.act("simulate") { administration, client throws(NightbellError) in
            try administration.simulate(event, client)
        }
    }
}
