import EdgeTestSupport
import EventLoop
import LinuxSystem
import Testing

/// Token of the deadline that ends a test's loop when the expected event does not come.
let deadlineToken = UInt64.max

extension LoopExecutor {
    /// Runs with turns that are given all gathered events.
    func run(_ turn: (_ batch: [Ready]) -> Void) throws(LoopError) {
        try run { () throws(LoopError) in
            let isUrgent = mayWait ? try dispatch(waits: true) : true
            if isUrgent {
                _ = try collectUrgent(waiting: 0, atMost: .max)
                _ = try dispatch(waits: false)
            }
            deliver(to: turn)
            return true
        }
    }

    /// Runs on the calling thread until `isDone` returns true for a turn's batch; false after ten seconds.
    func runUntil(_ isDone: (_ batch: [Ready]) -> Bool) throws -> Bool {
        let timer = try TimerDescriptor()
        try timer.set(absoluteNanoseconds: BootClock.now() + 10_000_000_000)
        let deadline = try watch(timer.rawValue, .read, .oneShot, token: deadlineToken)
        try deadline.arm()
        var result = true
        try run { batch in
            if batch.contains(where: { $0.token == deadlineToken }) {
                result = false
                stop()
            } else if isDone(batch) {
                stop()
            }
        }
        return result
    }

    /// The next batch that is not empty.
    func nextBatch() throws -> [Ready] {
        var next: [Ready] = []
        let came = try runUntil { batch in
            // Events that come with the stop belong to the same turn.
            if next.isEmpty { next = batch }
            return !next.isEmpty
        }
        try #require(came, "nothing came within ten seconds")
        return next
    }

    /// The events of the next turns while nothing new happens.
    func turnsWhileQuiet(_ count: Int) throws -> [Ready] {
        var seen: [Ready] = []
        for _ in 0..<count {
            // An event of our own makes the loop turn.
            let event = try EventDescriptor()
            try event.signal()
            let watch = try watch(event.rawValue, .read, .oneShot, token: deadlineToken - 1)
            try watch.arm()
            seen += try nextBatch().filter { $0.token != deadlineToken - 1 }
        }
        return seen
    }
}

/// A loop on a thread of its own, with an actor that lives there.
final class LoopThread: Sendable {
    let loop: LoopExecutor
    let resident: Resident
    private let thread: OwnThread<Int>

    init() throws {
        let loop = try LoopExecutor()
        self.loop = loop
        resident = Resident(loop)
        // The result is the number of turns.
        thread = OwnThread {
            var turns = 0
            try loop.run { _ in turns += 1 }
            return turns
        }
    }

    func join() throws -> Int { try thread.join() }
}

/// Counts, on the loop's thread.
actor Resident {
    private let loop: LoopExecutor
    private(set) var values: [Int] = []

    init(_ loop: LoopExecutor) { self.loop = loop }

    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    func append(_ value: Int) { values.append(value) }

    /// As in the supervisor: it is entered from the loop's callback, without a task.
    nonisolated func enterSynchronously(_ value: Int) {
        assumeIsolated { $0.append(value) }
    }
}
