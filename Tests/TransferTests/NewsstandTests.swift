import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing

/// Issues that the supervisor has downloaded for clients that do not run.
@Suite("Newsstand", .timeLimit(.minutes(40)))
struct NewsstandTests {
    private let server: OddServer
    private static let name = "org.test.reader"

    init() throws { server = try OddServer() }

    /// - Parameter count: how many clients subscribe, each with a long address.
    private func supervisor(_ path: String, subscribers count: Int) throws -> Supervised {
        let filling = String(repeating: "x", count: 7_000)
        return try Supervised(
            ["discretionary.patience=1s"],
            manifest: { _ in
                (0..<count).map { number in
                    """
                    identifier: \(Self.name).\(number)
                    modes: [newsstand]
                    user: "\(Supervised.user)"
                    directory: /
                    command: [/bin/sleep, "60"]
                    newsstand: {url: "\(server.address)\(path)&\(number)=\(filling)", every: 1d}

                    """
                }.joined(separator: "---\n")
            })
    }

    @Test("Subscriptions that do not fit into one message all come")
    func many() throws {
        let supervisor = try supervisor("/good?seed=a&size=10", subscribers: 20)
        #expect(eventually(within: 60_000) { (try? server.requests().count) == 20 })
        for number in 0..<20 { _ = try supervisor.nightbell("quit", "\(Self.name).\(number)") }
    }

    private func supervisor(_ path: String, environment: [String: String] = [:]) throws -> Supervised {
        try Supervised(
            ["discretionary.patience=1s"], environment: environment,
            manifest: { directory in
                """
                identifier: \(Self.name)
                modes: [newsstand]
                user: "\(Supervised.user)"
                directory: /
                command: [\(try product("scripted-client"))]
                environment:
                    CLIENT_CONTROL: \(directory)/own/\(Self.name).control
                newsstand: {url: "\(server.address)\(path)", every: 1d}
                """
            })
    }

    /// The launched process takes its issue.
    private func take(_ client: SupervisedClient, seed: String) throws {
        try client.accept()
        try client.command("hello \(client.name) newsstand")
        #expect(try client.event("wake").contains("transfer"))
        try client.tell("transfers newsstand")
        let line = try client.event("transferred newsstand issue")
        let digest = try server.digest(seed: seed, size: 1_500_000)
        #expect(line.contains(" bytes=1500000 sha=\(digest) failure=-"), "\(line)")
        try client.event("session-finished newsstand")
    }

    @Test("A client that has never run is launched for its issue, and only once")
    func launch() throws {
        let supervisor = try supervisor("/slow?seed=a&size=1500000&ms=20")
        let client = try SupervisedClient(awaiting: Self.name, of: supervisor)
        try take(client, seed: "a")
        #expect(
            eventually(within: 30_000) { (try? SmallFile.names(in: supervisor.store + "/sessions")) == [] })
        #expect(try supervisor.count("wakes_transfer", of: client.name) == 1)
        // Neither another worker nor another supervisor fetches it again.
        try supervisor.killWorker()
        try supervisor.restart()
        #expect(eventually(within: 30_000) { supervisor.transferProcess != nil })
        _ = try supervisor.nightbell("status")
        #expect(try server.requests().count == 1)
    }

    @Test(
        "A clock that is set while no process runs has one look for issues at once",
        arguments: [2 * 86_400, -2 * 86_400])
    func clockIsSet(by seconds: Int) throws {
        let clock = try PretendedClock()
        let supervisor = try supervisor("/good?seed=a&size=1500000", environment: clock.environment)
        let client = try SupervisedClient(awaiting: Self.name, of: supervisor)
        try take(client, seed: "a")
        #expect(
            eventually(within: 30_000) { (try? SmallFile.names(in: supervisor.store + "/sessions")) == [] })
        // Nothing is left to do, and no client comes: it is not replaced.
        try client.tell("exit 0")
        #expect(
            eventually(within: 90_000) {
                // One that has not heard of the client's end is replaced once.
                if let process = supervisor.transferProcess { kill(process, SIGTERM) }
                guard eventually(within: 30_000, { supervisor.transferProcess == nil }) else { return false }
                // Longer than the former process had for its end: nothing else is due.
                return !eventually(within: 6_000) { supervisor.transferProcess != nil }
            })
        try clock.set(by: seconds)
        #expect(eventually(within: 20_000) { supervisor.transferProcess != nil })
    }

    @Test("An issue survives the death of the transfer process, the worker and the client")
    func deaths() throws {
        let supervisor = try supervisor("/slow?seed=a&size=1500000&ms=60")
        let client = try SupervisedClient(awaiting: Self.name, of: supervisor)
        #expect(eventually(within: 30_000) { (try? server.requests().count) == 1 })
        kill(try require(supervisor.transferProcess), SIGKILL)
        #expect(eventually(within: 30_000) { (try? server.requests().count) ?? 0 >= 2 })
        try supervisor.killWorker()
        // Its first process dies before it has taken the issue.
        try client.accept()
        try client.command("hello \(client.name) newsstand")
        try client.event("wake")
        try client.tell("crash")
        try take(client, seed: "a")
    }

    @Test("A client that its user has quit has no issues, until it is launched again")
    func quit() throws {
        let supervisor = try supervisor("/slow?seed=a&size=1500000&ms=60")
        let client = try SupervisedClient(awaiting: Self.name, of: supervisor)
        #expect(eventually(within: 30_000) { (try? server.requests().count) == 1 })
        _ = try supervisor.nightbell("quit", Self.name)
        #expect(
            eventually(within: 30_000) { (try? SmallFile.names(in: supervisor.store + "/sessions")) == [] })
        try supervisor.restart()
        _ = try supervisor.nightbell("status")
        #expect(try server.requests().count == 1)
        _ = try supervisor.nightbell("launch", Self.name)
        try client.accept()
        try client.command("hello \(client.name) newsstand")
    }
}
