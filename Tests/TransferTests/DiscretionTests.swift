import EdgeTestSupport
import Glibc
import LinuxSystem
import SwiftProtobuf
import Testing
import TransferClient
import TransferWire

/// Transfers that can wait, and issues, which the process begins by itself.
@Suite("Discretionary transfers and issues", .timeLimit(.minutes(40)))
struct DiscretionTests {
    private let server: OddServer

    init() throws { server = try OddServer() }

    @Test("Discretionary tasks wait until the supervisor says that the moment is good; others do not")
    func waiting() throws {
        let process = try DemandedProcess()
        try process.demand { _ in }
        let client = try process.open("s")
        try client.add(server.address + "/good?seed=a&size=1000", tag: "later") { $0.isDiscretionary = true }
        try process.waitForPlan { $0.hasDiscretionary_p && $0.nextIssueS == 0 }
        try client.add(server.address + "/good?seed=b&size=1000", tag: "now")
        #expect(try client.nextResult().0.tag == "now")
        #expect(try client.next(within: 300) == nil)
        try process.demand { $0.moment = .good }
        #expect(try client.nextResult().0.tag == "later")
        try process.waitForPlan { !$0.hasDiscretionary_p }
    }

    @Test("A process in which all tasks wait for a good moment ends, and the next one goes on with them")
    func rest() throws {
        let process = try DemandedProcess(["--idle", "1"])
        try process.demand { $0.moment = .bad }
        try process.open("s").add(server.address + "/good?seed=a&size=1000") { $0.isDiscretionary = true }
        #expect(try process.exitCode() == 0)
        try process.waitForPlan { $0.hasDiscretionary_p }
        try process.restart()
        try process.demand { $0.moment = .good }
        #expect(try process.end()?.session == "s")
        #expect(try process.open("s").nextResult().0.failure == .none)
    }

    @Test("A download stops when the moment is over, and is continued in the next one")
    func interruption() throws {
        let process = try DemandedProcess()
        try process.demand { $0.moment = .good }
        let client = try process.open("s")
        let size = 3_000_000
        try client.add(server.address + "/slow?seed=a&size=\(size)&ms=40") {
            $0.isDiscretionary = true
            $0.wantsDigest = true
        }
        while let (report, _) = try client.next() {
            if case .progress(let progress) = report.report, progress.receivedBytes > 0 { break }
        }
        try process.demand { $0.moment = .bad }
        #expect(eventually(within: 10_000) { (try? list(client).state) == .waiting })
        let part = try list(client).receivedBytes
        #expect(part > 0 && part < size)
        #expect(
            try client.next(within: 300).map { if case .progress = $0.0.report { true } else { false } }
                ?? true)
        #expect(try list(client).receivedBytes == part)
        try process.demand { $0.moment = .good }
        let (finished, _) = try client.nextResult()
        #expect(finished.failure == .none)
        #expect(hexadecimal(finished.digest) == (try server.digest(seed: "a", size: size)))
        // The rest was asked for, and not the whole again.
        let requests = try server.requests()
        #expect(requests.count == 2 && requests[1].contains("bytes="))
    }

    private func list(_ client: TransferClient) throws -> WireTransferStatus {
        try require(try client.request { $0.list.after = 0 }.tasks.first)
    }

    @Test("A session with nothing but discretionary tasks may wait to be told, and no other")
    func ends() throws {
        let process = try DemandedProcess()
        try process.demand { $0.moment = .good }
        for (session, isMixed) in [("all", false), ("mixed", true)] {
            let client = try process.open(session)
            try client.add(server.address + "/good?seed=a&size=10") { $0.isDiscretionary = true }
            if isMixed { try client.add(server.address + "/slow?seed=b&size=70000&ms=300") }
            var end = try require(try process.end())
            // The first task of the two may be alone for a moment.
            while isMixed, end.isDiscretionary { end = try require(try process.end()) }
            #expect(end.session == session && end.isDiscretionary == !isMixed)
        }
    }

    @Test("An issue is downloaded without its client, and told once")
    func issue() throws {
        let process = try DemandedProcess()
        try process.demand { $0.moment = .good }
        let before = UInt64(time(nil))
        try process.subscribe(to: server.address + "/good?seed=news&size=5000")
        let end = try require(try process.end())
        #expect(end.client == "test" && end.session == "newsstand" && end.isDiscretionary)
        let client = try process.open("newsstand")
        let (finished, file) = try client.nextResult()
        #expect(finished.tag == "issue" && finished.failure == .none && finished.bytes == 5_000)
        let digest = try require(file).digest()
        #expect(hexadecimal(digest) == (try server.digest(seed: "news", size: 5_000)))
        try client.release(finished.task)
        // The same list again begins nothing.
        try process.subscribe(to: server.address + "/good?seed=news&size=5000")
        #expect(try process.end(within: 300) == nil)
        #expect(try server.requests().count == 1)
        // Another process knows when the last one was begun.
        try process.restart()
        try process.demand { $0.moment = .good }
        try process.subscribe(to: server.address + "/good?seed=news&size=5000")
        try process.waitForPlan { $0.nextIssueS > 0 }
        #expect((before + 86_400...before + 86_460).contains(process.lastPlan.nextIssueS))
        #expect(try server.requests().count == 1)
    }

    @Test("An issue for which there is no room is begun some minutes later, or by the next process")
    func withoutRoom() throws {
        let process = try DemandedProcess(["--tasks", "1"])
        try process.demand { $0.moment = .good }
        let client = try process.open("s")
        let task = try client.add(server.address + "/good?seed=a&size=10")
        #expect(try client.nextResult().0.task == task)
        #expect(try require(try process.end()).session == "s")
        try process.subscribe(to: server.address + "/good?seed=news&size=10")
        try process.waitForPlan { $0.nextIssueS > 0 }
        #expect(process.lastPlan.nextIssueS <= UInt64(time(nil)) + 300)
        try client.release(task)
        try process.restart()
        try process.demand { $0.moment = .good }
        try process.subscribe(to: server.address + "/good?seed=news&size=10")
        #expect(try require(try process.end()).session == "newsstand")
    }

    @Test(
        "The next issue comes after the interval, unless the last one was not taken, or nothing has changed",
        arguments: ["", "&weak=1"])
    func repetition(validator: String) throws {
        let process = try DemandedProcess()
        try process.demand { $0.moment = .good }
        try process.subscribe(to: server.address + "/issue?seed=a&size=100&same=2" + validator, every: 1)
        _ = try require(try process.end())
        // It is not taken: no request follows.
        #expect(try process.end(within: 2_500) == nil)
        #expect(try server.requests().count == 1)
        let client = try process.open("newsstand")
        let (first, _) = try client.nextResult()
        try client.release(first.task)
        // The server says twice that nothing has changed, and then has another one.
        let (second, _) = try client.nextResult()
        #expect(second.task > first.task && second.failure == .none)
        let log = try server.requests()
        let condition = (validator.isEmpty ? "" : "W/") + "\\\"1\\\"\""
        #expect(
            log.count == 4 && log.dropFirst().allSatisfy { $0.contains("\"if_none_match\": \"" + condition) })
    }

    @Test("An issue that was never taken comes again, also if it has not changed")
    func untaken() throws {
        let process = try DemandedProcess()
        try process.demand { $0.moment = .good }
        let address = server.address + "/issue?seed=a&size=100&same=100"
        try process.subscribe(to: address, every: 1)
        _ = try require(try process.end())
        // Its user quits the client, and starts it again later.
        try process.demand {
            $0.quitClients = ["test"]
            $0.subscriptions = WireTransferSubscriptions()
        }
        try process.subscribe(to: address, every: 1)
        #expect(try require(try process.end()).session == "newsstand")
    }

    @Test("An issue that is not there yet does not come for a client that subscribes no more")
    func unsubscribed() throws {
        let process = try DemandedProcess()
        try process.demand { _ in }
        try process.subscribe(to: server.address + "/good?seed=a&size=10")
        try process.waitForPlan { $0.hasDiscretionary_p }
        try process.demand { $0.subscriptions = WireTransferSubscriptions() }
        try process.waitForPlan { !$0.hasDiscretionary_p && $0.nextIssueS == 0 }
        #expect(try process.query("SELECT * FROM task") == "[]\n")
    }

    @Test("Subscriptions that are told in parts replace the former ones together")
    func parts() throws {
        let process = try DemandedProcess()
        try process.demand { $0.moment = .good }
        try process.subscribe(to: server.address + "/good?seed=a&size=10")
        _ = try require(try process.end())
        for client in ["one", "two", "test"] {
            try process.demand {
                $0.subscriptions.hasMore_p = client != "test"
                $0.subscriptions.subscriptions = [
                    .with {
                        $0.client = client
                        $0.url = server.address + "/good?seed=\(client)&size=10"
                        $0.intervalS = 86_400
                    }
                ]
            }
        }
        let clients = try (0..<2).map { _ in try require(try process.end()).client }
        #expect(clients.sorted() == ["one", "two"])
    }

    @Test(
        "A clock that was set back delays an issue by an interval, however often the process starts meanwhile"
    )
    func clock() throws {
        let process = try DemandedProcess()
        let address = server.address + "/good?seed=a&size=10"
        try process.demand { $0.moment = .good }
        try process.subscribe(to: address)
        _ = try require(try process.end())
        // As if it had been begun before the clock was set.
        try process.restart("UPDATE issue SET begun = begun + 8640000")
        try process.subscribe(to: address)
        try process.waitForPlan { $0.nextIssueS > 0 }
        let due = process.lastPlan.nextIssueS
        #expect(due <= UInt64(time(nil)) + 86_400)
        #expect(try process.query("SELECT begun FROM issue") == "[(\(due - 86_400),)]\n")
    }

    @Test("A clock that is set on makes the next issue due at once")
    func clockIsSetOn() throws {
        let clock = try PretendedClock()
        let process = try DemandedProcess(environment: clock.environment)
        try process.demand { $0.moment = .good }
        try process.subscribe(to: server.address + "/good?seed=a&size=10")
        _ = try require(try process.end())
        try take("newsstand", process)
        try clock.set(by: 2 * 86_400)
        #expect(try process.end(within: 20_000)?.session == "newsstand")
    }

    @Test(
        "An issue that cannot be had launches no client, and the next one is tried",
        arguments: ["/missing", "/secret?seed=a&size=10"])
    func failure(path: String) throws {
        let process = try DemandedProcess()
        try process.demand { $0.moment = .good }
        try process.subscribe(to: server.address + path, every: 1)
        #expect(try process.end(within: 2_500) == nil)
        #expect(try server.requests().count >= 2)
        try process.subscribe(to: server.address + "/good?seed=a&size=10", every: 1)
        #expect(try require(try process.end()).session == "newsstand")
    }

    @Test("The issues of a client that was quit are gone, and no more are begun")
    func quit() throws {
        let process = try DemandedProcess(["--idle", "1"])
        try process.demand { $0.moment = .good }
        try process.subscribe(to: server.address + "/good?seed=a&size=10")
        _ = try require(try process.end())
        try process.demand {
            $0.quitClients = ["test"]
            $0.subscriptions = WireTransferSubscriptions()
        }
        try process.waitForPlan { $0.nextIssueS == 0 && !$0.hasDiscretionary_p }
        #expect(try process.exitCode() == 0)
    }

    /// The connection ends with it.
    private func take(_ session: String, _ process: DemandedProcess) throws {
        let client = try process.open(session)
        let (finished, _) = try client.nextResult()
        try client.release(finished.task)
    }

    @Test(
        "A process that has had nothing to do for long enough does not end before it has read what it is told"
    )
    func untold() throws {
        let process = try DemandedProcess(["--idle", "1"])
        try process.demand { $0.moment = .good }
        _ = try require(try process.notice())
        process.signal(SIGSTOP)
        #expect(try process.notice(within: 1_500) == nil)
        try process.subscribe(to: server.address + "/good?seed=a&size=10")
        process.signal(SIGCONT)
        #expect(try process.end()?.session == "newsstand")
    }

    @Test("A process with nothing to do but to wait for the next issue ends, and has said when it is needed")
    func idle() throws {
        let process = try DemandedProcess(["--idle", "1"])
        try process.demand { $0.moment = .good }
        try process.subscribe(to: server.address + "/good?seed=a&size=10")
        _ = try require(try process.end())
        try take("newsstand", process)
        #expect(try process.exitCode() == 0)
        try process.waitForPlan { $0.nextIssueS > UInt64(time(nil)) }
    }
}
