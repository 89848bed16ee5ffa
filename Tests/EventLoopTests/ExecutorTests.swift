import EdgeTestSupport
import EventLoop
import Glibc
import LinuxSystem
import Testing

@Suite struct ExecutorTests {
    @Test func jobsRunOnTheLoopInOrder() async throws {
        let thread = try LoopThread()
        for value in 0..<100 { await thread.resident.append(value) }
        #expect(await thread.resident.values == Array(0..<100))
        thread.loop.stop()
        _ = try thread.join()
    }

    @Test func jobsFromEverywhereAllRun() async throws {
        let thread = try LoopThread()
        await withTaskGroup(of: Void.self) { group in
            for start in 0..<8 {
                group.addTask {
                    for value in 0..<500 { await thread.resident.append(start * 500 + value) }
                }
            }
        }
        #expect(await thread.resident.values.sorted() == Array(0..<4000))
        thread.loop.stop()
        _ = try thread.join()
    }

    @Test func theTurnEntersTheActorWithoutATask() async throws {
        let loop = try LoopExecutor()
        let resident = Resident(loop)
        let stream = try StreamPair()
        let watch = try loop.watch(stream.rawValue, .read, .oneShot, token: 3)
        try watch.arm()
        stream.send()
        let came = try loop.runUntil { batch in
            for ready in batch { resident.enterSynchronously(Int(ready.token)) }
            return !batch.isEmpty
        }
        #expect(came)
        let thread = OwnThread { try loop.run { _ in } }
        #expect(await resident.values == [3])
        loop.stop()
        try thread.join()
    }

    /// No event and no job comes: with a loop that waits, this test would not end.
    @Test func workIsDoneWithoutAnEvent() throws {
        let loop = try LoopExecutor()
        loop.hasWork = true
        var turns = 0
        try loop.run { batch in
            #expect(batch.isEmpty)
            turns += 1
            loop.hasWork = turns < 3
            if turns == 3 { loop.stop() }
        }
        #expect(turns == 3)
    }

    @Test func onlyTheLoopIsIsolated() async throws {
        let loop = try LoopExecutor()
        #expect(loop.isIsolatingCurrentContext() == false)
        var onLoop: Bool?
        loop.stop()
        try loop.run { _ in onLoop = loop.isIsolatingCurrentContext() }
        #expect(onLoop != false)
        #expect(loop.isIsolatingCurrentContext() == false)
        let other = try LoopThread()
        await other.resident.append(1)
        #expect(other.loop.isIsolatingCurrentContext() == false)
        other.loop.stop()
        _ = try other.join()
    }

    @Test func claimingIsolationElsewhereTraps() async {
        await #expect(processExitsWith: .failure) {
            let loop = try LoopExecutor()
            Resident(loop).enterSynchronously(1)
        }
    }

    @Test func stoppingRunsEnqueuedJobs() async throws {
        let loop = try LoopExecutor()
        let stopper = Stopper(loop)
        let thread = OwnThread { try loop.run { _ in } }
        await stopper.stopAndEnqueue(jobs: 50)
        try thread.join()
        #expect(stopper.tally.values == Array(0..<50))
    }

    /// A job enqueued by a job while the loop is stopping still runs, and so does its successor.
    @Test func stoppingRunsJobsEnqueuedByJobs() async throws {
        let loop = try LoopExecutor()
        let stopper = Stopper(loop)
        let thread = OwnThread { try loop.run { _ in } }
        await stopper.stopAndChain(jobs: 50)
        try thread.join()
        #expect(stopper.tally.values == Array((1...50).reversed()))
    }

    @Test func aStopBeforeTheRunEndsTheRun() throws {
        let loop = try LoopExecutor()
        loop.stop()
        loop.stop()
        try loop.run { _ in }
    }

    @Test func aLoopRunsAgainAndAgain() async throws {
        let loop = try LoopExecutor()
        let resident = Resident(loop)
        for value in 0..<20 {
            let thread = OwnThread { try loop.run { _ in } }
            await resident.append(value)
            // From the loop itself in every other round.
            if value.isMultiple(of: 2) { await stopFromInside(resident, loop) } else { loop.stop() }
            try thread.join()
        }
        let thread = OwnThread { try loop.run { _ in } }
        #expect(await resident.values == Array(0..<20))
        loop.stop()
        try thread.join()
    }

    /// With nothing due, the loop's thread must not be run at all.
    @Test func idleIsIdle() async throws {
        let loop = try LoopExecutor()
        let resident = Resident(loop)
        let stream = try StreamPair()
        let descriptor = stream.rawValue
        let turning = OwnThread { () -> Int in
            let watch = try loop.watch(descriptor, .read, .persistent, token: 1)
            try watch.arm()
            var turns = 0
            try loop.run { _ in turns += 1 }
            return turns
        }
        await resident.append(1)
        let thread = try #require(await resident.threadIdentifier())
        let path = "/proc/self/task/\(thread)/status"
        // Until it has gone to sleep after our last request.
        #expect(try eventually { try SmallFile.readText(path).contains("State:\tS") })
        let before = try switches(path)
        // Half a second in which nothing happens: there is no event to wait for.
        #expect(Poll.wait(stream.rawValue, for: .readable, timeoutMilliseconds: 500) == [])
        #expect(try switches(path) == before)
        loop.stop()
        // Jobs are no turns.
        #expect(try turning.join() == 0)
    }

    private func switches(_ path: String) throws -> [Substring] {
        try SmallFile.readText(path).split(separator: "\n").filter { $0.contains("ctxt_switches") }
    }

    private func stopFromInside(_ resident: isolated Resident, _ loop: LoopExecutor) {
        loop.stop()
    }
}

extension Resident {
    func threadIdentifier() -> pid_t? {
        // The kernel names the reading thread: `/proc/thread-self` leads to `PID/task/TID`.
        guard let text = try? SmallFile.readText("/proc/thread-self/stat") else { return nil }
        return text.split(separator: " ").first.flatMap { pid_t($0) }
    }
}

/// Sendable: written on the loop's thread, read when that has ended.
private final class Tally: @unchecked Sendable {
    var values: [Int] = []
}

/// An actor that enqueues jobs after it has stopped its own loop.
private actor Stopper {
    private let loop: LoopExecutor
    /// Outside of the actor: reading it must not need the loop to run.
    nonisolated let tally = Tally()

    init(_ loop: LoopExecutor) { self.loop = loop }

    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    func stopAndEnqueue(jobs: Int) {
        loop.stop()
        // A task that begins on this actor is enqueued as it is made.
        for value in 0..<jobs { Task { note(value) } }
    }

    func stopAndChain(jobs: Int) {
        loop.stop()
        chain(jobs)
    }

    private func note(_ value: Int) { tally.values.append(value) }

    private func chain(_ rest: Int) {
        guard rest > 0 else { return }
        note(rest)
        Task { chain(rest - 1) }
    }
}
