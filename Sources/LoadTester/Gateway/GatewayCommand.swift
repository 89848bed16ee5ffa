package import ArgumentParser
import Glibc

package struct GatewayCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "gateway",
        abstract: "Watches many clients in the dashboard, and has strangers attack the gateway.",
        discussion: """
            A headless Chromium opens the dashboard of a gateway whose supervisor has many dormant clients, and looks how \
            soon clients and wakes are shown; then sleepers are woken at a rate while the processor time of the gateway \
            is measured. At the end, clients are called one at a time: beside an idle gateway, beside as many busy \
            processes as an attack takes, beside browsers that read nothing, and while strangers send garbage to push \
            endpoints.
            """)

    @Option(help: "How clients are stopped.")
    package var suspend = SuspensionMethod.cgroup

    @Option(help: "Dormant clients, each with a parked TCP connection.")
    package var clients = 10_000

    @Option(help: "Further clients, which sleep and are called.")
    package var sleepers = 200

    @Option(help: "Wakes a second while the gateway's processor time is measured.")
    package var rate = 1_000

    @Option(help: "Requests a second of strangers.")
    package var garbage = 10_000

    @Option(help: "How long each part of a round lasts; there are three rounds.")
    package var seconds = 10

    @Option(
        help: ArgumentHelp(
            "A Chromium; without one nothing is told of the dashboard.", valueName: "path"))
    package var browser = "/usr/bin/chromium"

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        try require("--clients", clients, Bounds.dormant)
        try require("--sleepers", sleepers, 2...Bounds.processes.upperBound)
        try require("--rate", rate, 1...100_000)
        try require("--garbage", garbage, 1...1_000_000)
        try require("--seconds", seconds, 1...3_600)
    }

    package func run() throws {
        let runDirectory = try common.runDirectory(.watched(clients, sleepers: sleepers, suspend))
        let settings = GatewayRun.Settings(
            suspension: suspend, clients: clients, sleepers: sleepers, rate: rate, garbage: garbage,
            seconds: seconds, browser: access(browser, X_OK) == 0 ? browser : nil, seed: common.seed)
        try common.present(try GatewayRun(settings: settings, runDirectory: runDirectory).run())
    }
}
