import Glibc
import Testing

/// Whole runs: supervisor, phones, a SIP server and callers, each a process of its own.
@Suite(.serialized) struct DemoTests {
    struct Setting: CustomTestStringConvertible {
        var registrar: String
        var transport: String
        var suspend: String
        var more: [String] = []

        var testDescription: String { ([registrar, transport, suspend] + more).joined(separator: " ") }
    }

    /// The processors are busy with other tests, and a process may have to wait for one for half a second.
    private static let patience = ["--set", "keepAlive.lead=2s", "--set", "keepAlive.tolerance=0.25"]

    private func expectGoodRun(_ setting: Setting, clients: Int, calls: Int, rate: Int) throws {
        let directory = try TemporaryDirectory()
        let run = try DemoRun(
            [
                "--registrar", setting.registrar, "--transport", setting.transport, "--suspend",
                setting.suspend,
                "--clients", String(clients), "--calls", String(calls), "--rate", String(rate), "--json",
            ] + Self.patience + setting.more, temporaryDirectory: directory.path)
        #expect(run.read(until: nil, within: 240))
        #expect(run.exitStatus == 0, "\(run.text)")
        let result = try DemoResult(of: run.text)
        #expect(result.calls == calls)
        #expect(result.answered == calls)
        #expect(result.endedProperly == calls)
        #expect(result.lostWakes == 0)
        #expect(result.lateKeepalives == 0)
        #expect(result.wakesWithoutReason == 0)
        #expect(result.asleepAtEnd == clients)
        #expect(result.suspend == setting.suspend)
        #expect(result.asleepPercent > 20)
        // Calls find the phones asleep: otherwise this test would show nothing.
        #expect(result.wakesByReason["socket", default: 0] > calls / 4)
        #expect(result.wakeLatencyUs.max > 0)
        #expect(directory.isEmpty)
        #expect(directory.processesThatNameIt().isEmpty)
    }

    @Test(
        .enabled(if: access("/usr/sbin/kamailio", X_OK) == 0 && access("/usr/bin/sipp", X_OK) == 0),
        .enabled(if: geteuid() == 0, "the freezer needs root"),
        arguments: [
            Setting(registrar: "kamailio", transport: "tcp", suspend: "cgroup"),
            Setting(registrar: "kamailio", transport: "udp", suspend: "cgroup"),
            Setting(registrar: "kamailio", transport: "tcp", suspend: "signal"),
            Setting(registrar: "kamailio", transport: "udp", suspend: "signal"),
        ])
    func callsThroughKamailio(setting: Setting) throws {
        try expectGoodRun(setting, clients: 20, calls: 60, rate: 10)
    }

    @Test(
        .enabled(if: geteuid() == 0, "the freezer needs root"),
        arguments: [
            Setting(registrar: "builtin", transport: "both", suspend: "cgroup"),
            Setting(registrar: "builtin", transport: "both", suspend: "signal"),
            Setting(
                registrar: "builtin", transport: "tcp", suspend: "cgroup",
                more: ["--disturb", "connections", "--disturb", "supervisor"]),
            Setting(
                registrar: "builtin", transport: "both", suspend: "signal",
                more: ["--disturb", "supervisor", "--disturb", "resets"]),
        ])
    func callsThroughTheBuiltinServer(setting: Setting) throws {
        try expectGoodRun(setting, clients: 8, calls: 60, rate: 10)
    }

    /// Keep-alive handlers run while the phones sleep, and in time.
    @Test func keepAliveHandlersRun() throws {
        let directory = try TemporaryDirectory()
        let run = try DemoRun(
            [
                "--clients", "6", "--calls", "20", "--rate", "2", "--keep-alive", "3", "--suspend", "signal",
                "--json",
            ] + Self.patience, temporaryDirectory: directory.path)
        #expect(run.read(until: nil, within: 120))
        let result = try DemoResult(of: run.text)
        #expect(result.keepaliveRuns >= 12)
        #expect(result.lateKeepalives == 0)
    }

    @Test(arguments: [SIGINT, SIGTERM])
    func anInterruptedDemoLeavesNothingBehind(signal: CInt) throws {
        let directory = try TemporaryDirectory()
        let run = try DemoRun(
            ["--clients", "6", "--calls", "1000", "--suspend", "signal"], temporaryDirectory: directory.path)
        #expect(run.read(until: "6 suspended", within: 60), "\(run.text)")
        #expect(!directory.processesThatNameIt().isEmpty)
        run.send(signal)
        #expect(run.read(until: nil, within: 20))
        #expect(run.exitStatus == 130)
        #expect(directory.isEmpty)
        #expect(directory.processesThatNameIt().isEmpty)
    }

    @Test func aKilledDemoTakesItsProcessesWithIt() throws {
        let directory = try TemporaryDirectory()
        let run = try DemoRun(
            ["--clients", "4", "--calls", "1000", "--suspend", "signal"], temporaryDirectory: directory.path)
        #expect(run.read(until: "4 suspended", within: 60), "\(run.text)")
        let processes = try directory.handles()
        run.send(SIGKILL)
        for process in processes { #expect(process.ends(within: 20)) }
        #expect(directory.processesThatNameIt().isEmpty)
        #expect(!directory.isEmpty)

        // The next one removes its directory, but none of another program or of a running demo.
        let lookalikes = try Lookalikes(in: directory.path)
        let next = try DemoRun(
            ["--clients", "2", "--calls", "2", "--suspend", "signal"], temporaryDirectory: directory.path)
        #expect(next.read(until: nil, within: 120))
        #expect(next.exitStatus == 0, "\(next.text)")
        #expect(try directory.names() == lookalikes.names)
        #expect(lookalikes.areUntouched)
    }
}
