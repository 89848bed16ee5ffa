import CLinux
import Glibc
import Testing

@testable import ProcessWaits

@Suite("The ends of waits, from looks")
struct WaitMemoryTests {
    private func look(_ text: String, runs: UInt64, end: ProcessLook.WaitEnd) -> ProcessLook {
        let thread = ProcessLook.Thread(
            id: 7, name: "t", state: ThreadState(Array(text.utf8)), schedulerState: "S", end: end,
            activity: .init(runs: runs, nanoseconds: runs))
        return ProcessLook(
            pid: 7, name: "t", threads: [thread], descriptors: [:], tracer: nil, hasMemory: true)
    }

    private let sleep = "\(SYS_clock_nanosleep) 0x1 0x0 0x7f20 0x0 0x0 0x0 0x7ffd 0x7f00\n"
    private let restarted = "\(SYS_restart_syscall) 0x1 0x0 0x7f20 0x0 0x0 0x0 0x7ffd 0x7f00\n"

    /// Looks at the given times, and returns the last deadline.
    private func deadline(
        _ looks: [(at: Int64, ProcessLook)], estimate: Int64?
    ) -> WaitMemory.Deadline {
        var memory = WaitMemory(start: 0)
        var deadline = WaitMemory.Deadline.never
        for (time, look) in looks {
            var processes = [look]
            memory.take(&processes, at: time)
            deadline = memory.deadline(of: processes[0].threads[0]) { estimate }
        }
        return deadline
    }

    @Test("A wait began between the look before and the one that found it; the estimate counts in between")
    func bounds() {
        let other = look(sleep, runs: 1, end: .after(.nanoseconds(50)))
        let this = look(sleep, runs: 2, end: .after(.nanoseconds(50)))
        func end(_ estimate: Int64?) -> WaitMemory.Deadline {
            deadline([(100, other), (200, this)], estimate: estimate)
        }
        #expect(end(150) == .at(200, clock: CLOCK_MONOTONIC))
        #expect(end(40) == .at(150, clock: CLOCK_MONOTONIC))
        #expect(end(1_000) == .at(250, clock: CLOCK_MONOTONIC))
        #expect(end(nil) == .at(150, clock: CLOCK_MONOTONIC))
    }

    @Test("A wait that goes on after a freeze keeps its end")
    func restart() {
        let before = look(sleep, runs: 1, end: .after(.nanoseconds(500)))
        let after = look(restarted, runs: 3, end: .unknown)
        #expect(deadline([(100, before), (200, after)], estimate: 90) == .at(590, clock: CLOCK_MONOTONIC))
        // Nothing is known of one that was not seen before.
        #expect(deadline([(200, after)], estimate: 90) == .unknown)
    }

    @Test("A time of a clock is one, and a wait without an end has none")
    func others() {
        let fixed = look(sleep, runs: 1, end: .at(.seconds(3), clock: CLOCK_REALTIME))
        #expect(deadline([(100, fixed)], estimate: 90) == .at(3_000_000_000, clock: CLOCK_REALTIME))
        #expect(deadline([(100, look(sleep, runs: 1, end: .never))], estimate: nil) == .never)
        let endless = look(sleep, runs: 1, end: .after(.seconds(Int64.max)))
        #expect(deadline([(100, endless)], estimate: 90) == .at(.max, clock: CLOCK_MONOTONIC))
    }
}
