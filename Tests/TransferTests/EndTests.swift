import EdgeTestSupport
import LinuxSystem
import SwiftProtobuf
import Testing
import TransferClient
import TransferWire

/// The ends of sessions, as the supervisor is told of them.
@Suite("Ends that the supervisor is told", .timeLimit(.minutes(40)))
struct EndTests {
    private let server: OddServer

    init() throws { server = try OddServer() }

    @Test("The ends of very many sessions are told more slowly than the supervisor permits, and all of them")
    func many() throws {
        let process = try DemandedProcess()
        try process.demand { _ in }
        let client = try process.open("first")
        try client.add(server.address + "/good?seed=a&size=0")
        #expect(try client.nextResult().0.failure == .none)
        let count = 1_500
        let numbers =
            "WITH RECURSIVE n(x) AS (SELECT 1001 UNION ALL SELECT x + 1 FROM n WHERE x < \(1_000 + count))"
        // A result without a byte has an outcome without one.
        try process.restart(
            numbers
                + " INSERT INTO session (id, client, identifier, seen, ends) SELECT x, 'test', 's' || x, 0, 1 FROM n",
            numbers + """
                 INSERT INTO task (session, tag, request, state, created, outcome)
                SELECT x, '', (SELECT request FROM task LIMIT 1), 2, 0, x'' FROM n
                """)
        try process.demand { _ in }
        var instants: [Int64] = []
        var sessions: Set<String> = []
        while sessions.count < count + 1 {
            sessions.insert(try require(try process.end()).session)
            instants.append(BootClock.now())
        }
        let perSecond = instants.indices.map { first in
            instants[first...].prefix { $0 < instants[first] + 1_000_000_000 }.count
        }
        #expect(try require(perSecond.max()) < 1_000)
    }

    @Test("A task that ends after the time of orphans is told to its client")
    func lateEnd() throws {
        let process = try DemandedProcess(["--lifetime", "4", "--orphans", "4"])
        try process.demand { _ in }
        try process.open("late").add(server.address + "/slow?seed=a&size=3000000&ms=300")
        #expect(try process.end()?.session == "late")
    }

    @Test("A task with an address that is not permitted any more fails after a restart, and the others go on")
    func refused() throws {
        let process = try DemandedProcess()
        try process.demand { _ in }
        for session in ["bad", "good", "done"] {
            let client = try process.open(session)
            let path = session == "done" ? "/good?seed=a&size=10" : "/slow?seed=a&size=3000000&ms=300"
            try client.add(server.address + path, tag: session)
            if session == "done" { _ = try client.nextResult() }
        }
        // As if an earlier version had taken it.
        try process.restart(
            """
            UPDATE task SET request = CAST(replace(CAST(request AS TEXT), 'http://', 'gopher:') AS BLOB)
            WHERE tag IN ('bad', 'done')
            """)
        try process.demand { _ in }
        #expect(try ["bad", "done"].contains(require(try process.end()).session))
        #expect(try ["bad", "done"].contains(require(try process.end()).session))
        let client = try process.open("bad")
        let (finished, file) = try client.nextResult()
        #expect(finished.tag == "bad" && finished.failure == .refused && file == nil)
        #expect(finished.reason == "its address is not permitted any more")
        try client.release(finished.task)
        // The result that was there already is the client's.
        #expect(try process.open("done").nextResult().0.failure == .none)
        let other = try process.open("good")
        #expect(try other.request { $0.list.after = 0 }.tasks.map { $0.state == .finished } == [false])
        // It has ended, and is none any more for the next process.
        try process.restart()
        try process.demand { _ in }
        #expect(try process.open("bad").request { $0.list.after = 0 }.tasks.isEmpty)
    }

    @Test(
        "A client is told of the results that it can release, if all other tasks of the session wait for room"
    )
    func withoutRoom() throws {
        let process = try DemandedProcess(["--disk-bytes", "350000"])
        try process.demand { _ in }
        let client = try process.open("s")
        try client.add(server.address + "/good?seed=a&size=200000")
        #expect(try client.nextResult().0.failure == .none)
        #expect(try require(try process.end()).session == "s")
        // It does not fit beside the result.
        let task = try client.add(server.address + "/good?seed=b&size=200000")
        #expect(try require(try process.end()).session == "s")
        // So it is after a restart.
        try process.restart()
        try process.demand { _ in }
        #expect(try require(try process.end()).session == "s")
        let later = try process.open("s")
        let first = try later.nextResult().0.task
        try later.release(first)
        #expect(try later.nextResult().0.task == task)
    }

    @Test("A task that needs credentials is told while others of its session run")
    func credentialsMeanwhile() throws {
        let process = try DemandedProcess()
        try process.demand { _ in }
        let client = try process.open("s")
        let slow = try client.add(server.address + "/slow?seed=a&size=60000000&ms=100")
        #expect(
            try eventually(within: 60_000) {
                try client.request { $0.list.after = 0 }.tasks.map(\.state) == [.running]
            })
        let secret = try client.add(server.address + "/secret?seed=a&size=1000")
        #expect(try process.end()?.session == "s")
        let tasks = try client.request { $0.list.after = 0 }.tasks
        #expect(tasks.map(\.task) == [slow, secret])
        #expect(tasks.map(\.state) == [.running, .needsCredentials])
    }

    @Test("A client that comes, and cannot give credentials, is told again later and later")
    func challenges() throws {
        let process = try DemandedProcess()
        try process.demand { _ in }
        try process.open("s").add(server.address + "/secret?seed=a&size=1000")
        var instants: [Int64] = []
        for _ in 0..<3 {
            #expect(try process.end()?.session == "s")
            instants.append(BootClock.now())
            let client = try process.open("s")
            #expect(try require(try client.next()).0.challenge.task > 0)
        }
        let (first, second) = (instants[1] - instants[0], instants[2] - instants[1])
        #expect(first >= 9_000_000_000 && second >= 18_000_000_000, "\(first) \(second)")
    }

    @Test("The end of a task that cannot begin is told at once")
    func withoutBeginning() throws {
        let process = try DemandedProcess(["--idle", "600"])
        try process.demand { _ in }
        try process.open("s").add(server.address + "/good?seed=a&size=1000") { $0.isDiscretionary = true }
        // As if the process had been killed in the middle of a request that must not be repeated.
        try process.restart("UPDATE task SET tried = 1")
        try process.demand { $0.moment = .good }
        #expect(try process.end()?.session == "s")
        #expect(try process.open("s").nextResult().0.failure == .interrupted)
    }

    @Test("Credentials that never come end the task in its time, of which its client is told")
    func lateCredentials() throws {
        let process = try DemandedProcess(["--lifetime", "4"])
        try process.demand { _ in }
        try process.open("s").add(server.address + "/secret?seed=a&size=1000")
        _ = try require(try process.end())
        _ = try require(try process.end(within: 9_000))
        let (result, file) = try process.open("s").nextResult()
        #expect(result.failure == .timedOut && file == nil)
    }
}
