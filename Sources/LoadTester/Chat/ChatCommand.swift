package import ArgumentParser

package struct ChatCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "chat",
        abstract:
            "A chat server with and without hibernation: memory, delay, throughput, and whether all arrives.")

    @Option(help: "Connections to each of two servers, active ones included: at least 18 times --active.")
    package var connections = 9_000

    @Option(
        help: "Connections that send all the time, to servers of their own; as many others call quiet ones.")
    package var active = 50

    @Option(help: "Messages that are sent while connections are hibernated at random.")
    package var messages = 1_000_000

    @Option(help: "Messages from a sender to a receiver in a round, on each side.")
    package var calls = 1_000

    @Option(help: "Rounds; the figures are medians of theirs.")
    package var rounds = 5

    @Option(
        help: ArgumentHelp(
            "How long a connection is idle before it is hibernated, where it is not at random.",
            valueName: "milliseconds"))
    package var idleMilliseconds = 500

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        // The minimum is that of the smallest `--active`.
        try require("--connections", connections, 36...Bounds.socketsOfOne.upperBound)
        try require("--active", active, 2...10_000)
        try require("--messages", messages, 1...100_000_000)
        try require("--calls", calls, Bounds.calls)
        try require("--rounds", rounds, Bounds.rounds)
        try require("--idle-milliseconds", idleMilliseconds, 100...60_000)
        guard active * 18 <= connections else {
            throw ValidationError("--active: an 18th of --connections at most")
        }
    }

    package func run() throws {
        let runDirectory = try common.runDirectory(.chatting(connections, active: active))
        let settings = ChatRun.Settings(
            connections: connections, active: active, messages: messages, rounds: rounds, calls: calls,
            seed: common.seed, idle: .milliseconds(idleMilliseconds))
        try common.present(try ChatRun(settings: settings, runDirectory: runDirectory).run())
    }
}
