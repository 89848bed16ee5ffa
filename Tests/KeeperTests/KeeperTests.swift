import EdgeTestSupport
import Foundation
import Keeper
import LinuxSystem
import Testing

@Suite("Keeper and workers", .timeLimit(.minutes(40)))
struct KeeperTests {
    @Test("Records of a worker survive it, descriptors too")
    func survives() throws {
        let program = try KeptProgram()
        let first = try program.worker("first")
        try program.said("served")
        try program.command("put 1 one")
        try program.command("put 2 two")
        try program.command("update 2 deux")
        try program.command("pipe 3 text")
        try program.command("put 4 four")
        try program.command("remove 4")
        try program.command("update 5 nothing")
        try program.command("sharedState 3 77")
        kill(first, SIGKILL)
        let second = try program.worker()
        #expect(second != first)
        #expect(try program.list() == ["1=one", "2=deux", "3=|text", "0 more, 2 descriptors"])
        try program.child.send("value 3\n")
        try program.said("value 77")
        try program.said("ok")
    }

    @Test("A worker may write a record and die in the same moment")
    func lastWords() throws {
        let program = try KeptProgram()
        try program.worker("first")
        try program.child.send("put 1 one\n" + (2...60).map { "put \($0) \($0)\n" }.joined() + "die\n")
        try program.worker()
        for _ in 1...60 { try program.said("ok") }
        #expect(try program.list().count == 61)
    }

    @Test("More records than a packet, and than the queue, can hold")
    func manyDescriptors() throws {
        let program = try KeptProgram("ulimit -n 8192;")
        try program.worker("first")
        try program.command("many 5000")
        try program.child.send("die\n")
        try program.worker()
        #expect(try program.list() == ["5000 more, 5001 descriptors"])
    }

    @Test("Workers that die at once are replaced with back-off, and all clients are thawed once")
    func loop() throws {
        let program = try KeptProgram()
        for number in 0..<7 {
            try program.worker(number == 0 ? "first" : "later")
            try program.child.send("die\n")
        }
        try program.worker()
        try program.said("thawed")
        try program.child.send("what\n")
        #expect(try program.said("") != "thawed")
    }

    @Test("A worker that exits unasked is replaced; one that sends invalid packets is ended")
    func otherEnds() throws {
        let program = try KeptProgram()
        try program.worker("first")
        try program.command("put 1 one")
        try program.child.send("exit 0\n")
        try program.worker()
        try program.child.send("nonsense\n")
        try program.said("error: worker")
        try program.worker()
        #expect(try program.list().first == "1=one")
    }

    @Test("A worker that closes its channel is replaced when it ends, not while it runs")
    func hungUp() throws {
        let program = try KeptProgram()
        let pid = try program.worker("first")
        // The keeper says so in its own time.
        try program.said("served")
        try program.command("put 1 one")
        try program.child.send("hangUp\n")
        try program.said("hung up")
        let heard = try program.child.hear(within: 200)
        #expect(heard == nil)
        try ProcessHandle(opening: pid).signal(SIGKILL)
        try program.worker()
        #expect(try program.list().first == "1=one")
        try program.said("error: the worker, pid \(pid), ended by signal 9")
    }

    @Test("A first worker that cannot serve ends the keeper, with its own exit code")
    func cannotServe() throws {
        let program = try KeptProgram("KEPT_BROKEN=1")
        try program.said("failure: broken on purpose")
        #expect(try program.status() == 7)
    }

    @Test("SIGTERM is passed on to the worker, and the keeper ends after it")
    func stop() throws {
        let program = try KeptProgram()
        try program.worker("first")
        kill(program.child.pid, SIGTERM)
        try program.said("stopping")
        #expect(try program.status() == 0)
    }

    @Test("A worker that dies while it stops, or before, is replaced by one that stops; once")
    func stopAgain() throws {
        for deaths in 1...2 {
            let program = try KeptProgram("KEPT_DEATHS_AT_STOP=\(deaths)")
            try program.worker("first")
            kill(program.child.pid, SIGTERM)
            try program.said("dying")
            try program.worker()
            try program.said(deaths == 1 ? "stopping" : "thawed")
            #expect(try program.status() == 0)
        }
        // Between two workers.
        let program = try KeptProgram("KEPT_PAUSES=1")
        try program.worker("first")
        try program.child.send("die\n")
        try program.worker()
        try program.child.send("die\n")
        try program.said("error: the worker")
        try program.said("error: the worker")
        kill(program.child.pid, SIGTERM)
        try program.worker()
        try program.said("stopping")
        #expect(try program.status() == 0)
    }

    @Test("The worker notices the keeper's end")
    func orphan() throws {
        let program = try KeptProgram()
        try program.worker("first")
        kill(program.child.pid, SIGKILL)
        try program.said("orphaned")
    }

    @Test("A socket that lingers at close does not delay the keeper", arguments: ["linger", "nest"])
    func linger(kind: String) throws {
        let program = try KeptProgram()
        try program.worker("first")
        try program.command("\(kind) 1")
        try program.command("put 2 two")
        try program.child.send("die\n")
        // The second worker does not have it as its own: the keeper's is the last.
        try program.worker()
        try program.command("remove 1")
        try program.command("put 3 three")
        try program.child.send("die\n")
        try program.worker()
        #expect(try program.list().prefix(2) == ["2=two", "3=three"])
    }

    @Test("Many descriptors whose closing may block are left to one child")
    func closeMany() throws {
        let program = try KeptProgram()
        try program.worker("first")
        try program.child.send("openDevice\n")
        let lowest = try program.said("open ")
        try program.said("ok")
        try program.child.send("closeDevices 500\n")
        #expect(try program.said("due ") == "due true")
        #expect(try program.said("children ") == "children 1 \(lowest)")
        try program.said("ok")
    }

    @Test("An upgrade: a new worker, then a new program in the same keeper, with all records")
    func upgrade() throws {
        let program = try KeptProgram()
        let first = try program.worker("first")
        let keeper = try program.said("keeper ").dropFirst("keeper ".count)
        try program.command("put 1 one")
        try program.command("pipe 2 text")
        try program.command("sharedState 0 5")
        kill(program.child.pid, SIGUSR2)
        let second = try program.worker()
        #expect(second != first)
        #expect(try program.said("keeper again ").hasSuffix(keeper))
        #expect(try program.list() == ["1=one", "2=|text", "0 more, 2 descriptors"])
        // Once more, requested by the worker, and then a death: the new keeper can do all that the old one
        // could.
        try program.command("put 3 three")
        try program.command("upgrade")
        try program.worker()
        try program.said("keeper again")
        try program.child.send("die\n")
        try program.worker()
        #expect(try program.list().filter { $0.hasPrefix("3=") } == ["3=three"])
        kill(program.child.pid, SIGTERM)
        #expect(try program.status() == 0)
    }

    @Test("A reload requested during an upgrade waits for the worker that serves after it")
    func reloadDuringUpgrade() throws {
        let directory = try TemporaryDirectory()
        let gate = directory.file("gate")
        _ = try systemCall("mkfifo") { mkfifo(gate, 0o600) }
        let program = try KeptProgram("KEPT_GATE='\(gate)'")
        try program.worker("first")
        kill(program.child.pid, SIGUSR2)
        try program.said("quiesced")
        // The new program waits at the gate, so this comes before it could serve.
        kill(program.child.pid, SIGHUP)
        close(try systemCall("open") { open(gate, O_WRONLY) })
        let second = try program.worker()
        try program.said("reload \(second)")
        // Without another one it is the old worker, once it goes on.
        try program.command("upgrade")
        try program.said("quiesced")
        kill(program.child.pid, SIGHUP)
        let end = try systemCall("open") { open(gate, O_WRONLY) }
        #expect(write(end, [0], 1) == 1)
        close(end)
        try program.said("goes on")
        try program.said("reload \(second)")
        kill(program.child.pid, SIGTERM)
        #expect(try program.status() == 0)
    }
}
