import CTestSupport
import EdgeTestSupport
import Glibc
import LinuxSystem
import Suspension
import Testing

/// The requirements for every method of stopping a process.
@Suite(.enabled(if: canFreeze)) struct SuspenderTests {
    static let methods: [SuspensionMethod] = [.cgroup, .signal]
    private let stage: Fixture

    init() throws { stage = try Fixture() }

    @Test(arguments: methods) func aFrozenProcessIsSilentUntilThawed(method: SuspensionMethod) throws {
        let suspender = try stage.suspender(method)
        #expect(suspender.method == method && suspender.method(slot: 0) == method)
        let child = try Child.awakeEcho()
        try suspender.attach(0, child)
        for _ in 0..<3 {
            try suspender.freezeFully(0)
            #expect(try child.isSilent())
            #expect(try suspender.progress(slot: 0) == .frozen)
            try suspender.thaw(slot: 0)
            #expect(try child.hear() == "!")
        }
        suspender.detachAll()
        #expect(try child.answers())
    }

    @Test(arguments: methods) func everyCallMayBeRepeated(method: SuspensionMethod) throws {
        let suspender = try stage.suspender(method)
        let child = try Child.awakeEcho()
        try suspender.attach(3, child)
        try suspender.attach(3, child)
        try suspender.thaw(slot: 3)
        #expect(try suspender.progress(slot: 3) == .pending)
        try suspender.freezeFully(3)
        try suspender.attach(3, child)
        try suspender.freezeFully(3)
        #expect(try child.isSilent())
        try suspender.thaw(slot: 3)
        try suspender.thaw(slot: 3)
        #expect(try child.hear() == "!")
        suspender.detach(slot: 3)
        suspender.detach(slot: 3)
        #expect(try child.answers())
    }

    @Test(arguments: methods) func aQuickThawIsAThaw(method: SuspensionMethod) throws {
        let suspender = try stage.suspender(method)
        let child = try Child.awakeEcho()
        // An empty slot, then one with a running process: nothing to do, which is a success.
        #expect(suspender.quickThaw(slot: 2).perform())
        try suspender.attach(2, child)
        #expect(suspender.quickThaw(slot: 2).perform())
        for _ in 0..<3 {
            try suspender.freezeFully(2)
            #expect(try child.isSilent())
            #expect(suspender.quickThaw(slot: 2).perform())
            suspender.markThawed(slot: 2)
            suspender.markThawed(slot: 2)
            suspender.finishDeferredWork()
            #expect(try child.hear() == "!")
            #expect(try suspender.progress(slot: 2) == .pending)
        }
        suspender.detach(slot: 2)
        suspender.markThawed(slot: 2)
        #expect(try child.answers())
    }

    @Test func aProcessStoppedByAnotherIsNotThawedQuickly() throws {
        let suspender = try stage.suspender(.signal)
        let child = try Child.awakeEcho()
        try suspender.attach(0, child)
        kill(child.pid, SIGSTOP)
        try #require(eventually { ProcFS.state(child.pid) == "T" })
        try suspender.freezeFully(0)
        #expect(suspender.quickThaw(slot: 0).perform())
        suspender.markThawed(slot: 0)
        #expect(try child.isSilent())
        kill(child.pid, SIGCONT)
        #expect(try child.hear() == "!")
    }

    @Test(arguments: methods) func detachingThaws(method: SuspensionMethod) throws {
        let suspender = try stage.suspender(method)
        let child = try Child.awakeEcho()
        try suspender.attach(0, child)
        try suspender.freezeFully(0)
        suspender.detach(slot: 0)
        #expect(try child.answers())
    }

    @Test(arguments: methods) func anEmptySlot(method: SuspensionMethod) throws {
        let suspender = try stage.suspender(method)
        let calls: [(UInt32) throws -> Void] = [
            { _ = try suspender.freeze(slot: $0) }, { _ = try suspender.progress(slot: $0) },
            { try suspender.thaw(slot: $0) },
        ]
        for call in calls {
            let error = #expect(throws: SuspensionError.self) { try call(9) }
            #expect(error?.code == .notAttached)
        }
        suspender.detach(slot: 9)
    }

    @Test(arguments: methods) func theDeadCannotBeAttached(method: SuspensionMethod) throws {
        let suspender = try stage.suspender(method)
        let child = try Child.awakeEcho()
        let handle = try child.handle()
        kill(child.pid, SIGKILL)
        _ = Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 10_000)
        for _ in 0..<2 {
            let error = #expect(throws: SuspensionError.self) {
                try suspender.attach(slot: 0, process: handle)
            }
            #expect(error?.code == .processGone)
            // Once as a zombie, once after it was waited for.
            child.reap()
        }
        suspender.detachAll()
    }

    @Test(arguments: methods) func killedWhileFrozen(method: SuspensionMethod) throws {
        let suspender = try stage.suspender(method)
        let child = try Child.awakeEcho()
        let handle = try child.handle()
        try suspender.attach(0, child)
        try suspender.freezeFully(0)
        kill(child.pid, SIGKILL)
        #expect(Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 10_000) == .readable)
        let error = #expect(throws: SuspensionError.self) {
            // The cgroup counts the process until it is completely gone.
            _ = try eventually(within: 1000) { try suspender.progress(slot: 0) == .pending }
        }
        #expect(error?.code == .processGone)
        try suspender.thaw(slot: 0)
        suspender.detach(slot: 0)
        suspender.detachAll()
    }

    /// `^Z`, then a freeze and a thaw: another process has stopped it.
    @Test(arguments: methods) func aProcessStoppedByAnotherStaysStopped(method: SuspensionMethod) throws {
        let suspender = try stage.suspender(method)
        let child = try Child.awakeEcho()
        try suspender.attach(0, child)
        kill(child.pid, SIGSTOP)
        #expect(eventually { ProcFS.state(child.pid) == "T" })
        try suspender.freezeFully(0)
        try suspender.thaw(slot: 0)
        #expect(try child.isSilent())
        #expect(ProcFS.state(child.pid) == "T")
        kill(child.pid, SIGCONT)
        #expect(try child.hear() == "!")
        // And the next time is like the first.
        try suspender.freezeFully(0)
        #expect(try child.isSilent())
        try suspender.thaw(slot: 0)
        #expect(try child.hear() == "!")
    }

    /// The tracer is the calling thread, so the test must not switch threads.
    @Test(arguments: methods, [false, true])
    func theTracedFreezeToo(method: SuspensionMethod, inTracersHands: Bool) throws {
        let stage = stage
        try onOwnThread {
            let suspender = try stage.suspender(method)
            let child = try Child.awakeEcho()
            try suspender.attach(0, child)
            try #require(ctest_trace(child.pid) == 0)
            #expect(ProcFS.tracerPID(child.pid) != nil)
            if inTracersHands {
                #expect(ctest_trace_interrupt(child.pid) == 0)
                #expect(eventually { ProcFS.state(child.pid) == "t" })
            }
            try suspender.freezeFully(0)
            #expect(try child.isSilent())
            try suspender.thaw(slot: 0)
            var status: CInt = 0
            // If a signal or the suspender stopped it for its tracer, the tracer has to detach.
            if inTracersHands || method == .signal {
                #expect(waitpid(child.pid, &status, WUNTRACED | __WALL) == child.pid)
                #expect(ctest_trace_end(child.pid) == 0)
            }
            #expect(try child.hear() == "!")
            suspender.detachAll()
        }
    }

    @Test(arguments: methods) func everyThreadStops(method: SuspensionMethod) throws {
        let suspender = try stage.suspender(method)
        let child = try Child.threaded(20)
        #expect(eventually { ProcFS.threads(child.pid).map { $0 >= 20 } ?? false })
        try suspender.attach(0, child)
        for _ in 0..<20 {
            try suspender.freezeFully(0)
            if method == .signal {
                let states = ProcFS.threadIdentifiers(child.pid).map {
                    ProcFS.statistics(child.pid, thread: $0)?.state
                }
                #expect(states.count >= 20 && states.allSatisfy { $0 == "T" })
            }
            try suspender.thaw(slot: 0)
        }
        suspender.detachAll()
    }

    @Test(arguments: methods) func aSlotIsUsedAgain(method: SuspensionMethod) throws {
        let suspender = try stage.suspender(method)
        let first = try Child.awakeEcho()
        let second = try Child.awakeEcho()
        try suspender.attach(0, first)
        try suspender.freezeFully(0)
        try suspender.attach(0, second)
        #expect(try first.answers())
        try suspender.freezeFully(0)
        #expect(try first.answers())
        #expect(try second.isSilent())
        suspender.detachAll()
        #expect(try second.hear() == "!")
    }

    @Test(arguments: methods) func manyAtOnce(method: SuspensionMethod) throws {
        let suspender = try stage.suspender(method)
        let children = try (0..<30).map { _ in try Child.awakeEcho() }
        for (slot, child) in children.enumerated() {
            try suspender.attach(UInt32(slot), child)
            _ = try suspender.freeze(slot: UInt32(slot))
        }
        for slot in children.indices {
            #expect(try eventually { try suspender.progress(slot: UInt32(slot)) == .frozen })
        }
        for (slot, child) in children.enumerated() where !slot.isMultiple(of: 2) {
            try suspender.thaw(slot: UInt32(slot))
            #expect(try child.answers())
        }
        #expect(try children[0].isSilent())
        suspender.detachAll()
        #expect(try children[0].hear() == "!")
        for child in children { #expect(try child.answers()) }
        if method == .cgroup { #expect(!exists(try stage.cgroupDirectory())) }
    }

    @Test func theMethodNoneStopsNoProcess() throws {
        let suspender = try stage.suspender(.none)
        let child = try Child.awakeEcho()
        try suspender.attach(0, child)
        #expect(try suspender.freeze(slot: 0) == .frozen)
        #expect(try child.answers())
        try suspender.thaw(slot: 0)
        suspender.detachAll()
    }
}
