import ArgumentParser
import LoadTester
import Testing

@Suite("The command line of nightbell-load")
struct OptionTests {
    private func parse<Command: ParsableCommand>(_ arguments: String, as: Command.Type) throws -> Command {
        try #require(
            try LoadCommand.parseAsRoot(arguments.split(separator: " ").map(String.init)) as? Command)
    }

    @Test("Options that are not given have the defaults of the targets")
    func defaults() throws {
        let wake = try parse("wake", as: WakeCommand.self)
        #expect((wake.clients, wake.rounds) == (200, 5))
        #expect(wake.suspend == .cgroup)
        let storm = try parse("storm", as: StormCommand.self)
        #expect(storm.clients == 1_000)
        let park = try parse("park", as: ParkCommand.self)
        #expect((park.sockets, park.firstSockets, park.idleSeconds) == (15_000, 1_000, 10))
        let adopt = try parse("adopt", as: AdoptCommand.self)
        #expect((adopt.sockets, adopt.batch) == (15_000, 250))
        let soak = try parse("soak", as: SoakCommand.self)
        #expect(soak.minutes == 10)
        let offload = try parse("offload", as: OffloadCommand.self)
        #expect((offload.sockets, offload.interval, offload.intervals) == (15_000, "30s", 2))
        let unmodified = try parse("unmodified", as: UnmodifiedCommand.self)
        #expect((unmodified.programs, unmodified.rounds, unmodified.idleSeconds) == (200, 5, 60))
        let transfer = try parse("transfer", as: TransferCommand.self)
        #expect((transfer.files, transfer.bytes, transfer.kills) == (100, "64MiB", 0))
        let chat = try parse("chat", as: ChatCommand.self)
        #expect((chat.connections, chat.active, chat.messages) == (9_000, 50, 1_000_000))
        #expect((chat.rounds, chat.calls, chat.idleMilliseconds) == (5, 1_000, 500))
    }

    @Test("Options are understood by every subcommand that they make sense for")
    func options() throws {
        let wake = try parse(
            "wake --suspend signal --transport udp --clients 7 --calls 3 --rounds 2 --seed 9 --json --report r",
            as: WakeCommand.self)
        #expect((wake.suspend, wake.transport) == (.signal, .udp))
        #expect((wake.clients, wake.calls, wake.rounds) == (7, 3, 2))
        #expect((wake.common.seed, wake.common.json, wake.common.report) == (9, true, "r"))
        let keepAlive = try parse("keepalive --virtual --hours 2 --clients 5", as: KeepAliveCommand.self)
        #expect(keepAlive.isVirtual)
        #expect(keepAlive.clients == 5)
        let calls = try parse("calls --transport udp --rate 3.5 --mean-length 0.25", as: CallsCommand.self)
        #expect((calls.transport, calls.rate, calls.meanLength) == (.udp, 3.5, 0.25))
    }

    @Test("A report needs a directory")
    func emptyReport() {
        for command in ["wake", "keepalive", "chat"] {
            #expect(throws: (any Error).self) {
                _ = try LoadCommand.parseAsRoot([command, "--report", ""])
            }
        }
    }

    @Test(
        "Values that make no sense are refused",
        arguments: [
            "wake --clients 0", "wake --calls 0", "wake --suspend politely", "wake --transport pigeon",
            "storm --rounds 0", "park --sockets 10 --first-sockets 20", "park --sockets 15001",
            "adopt --batch 251", "adopt --sockets 15", "keepalive --tolerance 2",
            "keepalive --shortest 10 --longest 5", "calls --transport unix", "soak --minutes 0", "dance",
            "calls --rate 1e-300", "calls --rate inf", "calls --rate nan", "calls --mean-length 1e300",
            "calls --clients 4294967297", "calls --calls 99999999999", "soak --minutes 1e30",
            "soak --minutes inf",
            "keepalive --virtual --hours 1e9", "keepalive --virtual --hours inf",
            "keepalive --virtual --longest 99999999999", "keepalive --virtual --clients 4294967297",
            "keepalive --clients 100000", "keepalive --seconds 99999999999", "keepalive --hours 3",
            "keepalive --tolerance 0.2", "keepalive --virtual --seconds 3",
            "keepalive --virtual --suspend signal",
            "park --clients 9223372036854775807", "park --idle-clients 99999999999",
            "park --idle-seconds 99999999999", "park --sockets 99999999960", "park --seed 3",
            "adopt --seed 3",
            "adopt --sockets 99999999960", "adopt --rounds 99999999999", "chaos --kills 99999999999",
            "offload --sockets 15001", "offload --interval 30m", "offload --interval 0s",
            "offload --interval 9223372036854775807", "offload --intervals 99999999999",
            "offload --interval 7200s --intervals 13", "offload --sockets 99999999995", "offload --seed 3",
            "offload --clients 0", "transfer --files 0", "transfer --bytes 12",
            "transfer --bytes 1XB", "transfer --kills -1", "transfer --sessions 101", "chaos --clients 0",
            "chaos --sockets 100",
            "chaos --clients 1 --sockets 251",
            "unmodified --programs 0", "unmodified --programs 99999999999", "unmodified --rounds 0",
            "unmodified --transport udp", "unmodified --idle-seconds 0",
            "chaos --clients 99999999999", "relaunch --clients 1", "relaunch --clients 99999999999",
            "relaunch --clients 20 --first-clients 20", "relaunch --first-clients 0",
            "relaunch --calls 99999999999", "relaunch --rounds 99999999999",
            "wake --calls 99999999999", "storm --second-user 0", "chat --connections 0",
            "chat --connections 35 --active 2",
            "chat --connections 899", "chat --connections 99999999999", "chat --active 1",
            "chat --active 501", "chat --messages 0", "chat --messages 99999999999", "chat --calls 0",
            "chat --rounds 0", "chat --idle-milliseconds 99", "chat --idle-milliseconds 99999999999",
            "chat --suspend signal",
        ])
    func refusals(arguments: String) {
        #expect(throws: (any Error).self) {
            _ = try LoadCommand.parseAsRoot(arguments.split(separator: " ").map(String.init))
        }
    }
}
