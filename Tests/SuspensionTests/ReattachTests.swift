import EdgeTestSupport
import Glibc
import LinuxSystem
import Suspension
import Testing

/// The state that the next suspender finds for processes of one that has crashed.
@Suite(.enabled(if: canFreeze)) struct ReattachTests {
    private let stage: Fixture

    init() throws { stage = try Fixture() }

    private func reattach(
        _ suspender: any Suspender, _ child: Child, wasStopped: Bool = true
    ) throws -> FoundState {
        try suspender.reattach(slot: 3, process: try child.handle(), wasStopped: wasStopped)
    }

    @Test(arguments: [SuspensionMethod.cgroup, .signal]) func aStoppedProcessStaysStopped(
        method: SuspensionMethod
    ) throws {
        let child = try Child.awakeEcho()
        let first = try stage.suspender(method)
        try first.attach(3, child)
        try first.freezeFully(3)
        let second = try stage.suspender(method)
        #expect(try reattach(second, child) == .stopped)
        #expect(try child.isSilent())
        try second.thaw(slot: 3)
        #expect(try child.hear() == "!")
        // The suspender can continue with it, too.
        try second.freezeFully(3)
        #expect(try child.isSilent())
        second.detachAll()
        child.end()
    }

    @Test(arguments: [SuspensionMethod.cgroup, .signal])
    func aRunningProcessKeepsRunning(method: SuspensionMethod) throws {
        let child = try Child.awakeEcho()
        let first = try stage.suspender(method)
        try first.attach(3, child)
        let second = try stage.suspender(method)
        #expect(try reattach(second, child) == .running)
        #expect(try child.answers())
        try second.freezeFully(3)
        #expect(try child.isSilent())
        second.detachAll()
        child.end()
    }

    /// They come from different cgroups, so there are several places to search.
    @Test func aProcessInAnotherPlaceIsFound() throws {
        let homes = try [ScratchCgroup(), ScratchCgroup()]
        let children = try homes.map { home in
            let child = try Child.awakeEcho()
            try home.add(child.pid)
            return child
        }
        let first = try stage.suspender(.cgroup)
        for (slot, child) in children.enumerated() {
            try first.attach(UInt32(slot), child)
            try first.freezeFully(UInt32(slot))
        }
        let second = try stage.suspender(.cgroup)
        for (slot, child) in children.enumerated() {
            let found = try second.reattach(
                slot: UInt32(slot), process: try child.handle(), wasStopped: true)
            #expect(found == .stopped)
            #expect(try child.isSilent())
            try second.thaw(slot: UInt32(slot))
            #expect(try child.hear() == "!")
        }
        second.detachAll()
        for (home, child) in zip(homes, children) {
            #expect(cgroup(of: child.pid) == home.directory)
            #expect(try SmallFile.names(in: home.directory).allSatisfy { !$0.hasPrefix("nightbell-") })
            child.end()
        }
    }

    @Test func anUnattachedProcessRuns() throws {
        let child = try Child.awakeEcho()
        let suspender = try stage.suspender(.cgroup)
        #expect(try reattach(suspender, child, wasStopped: false) == .running)
        #expect(!suspender.isAttached(slot: 3))
        suspender.detachAll()
        child.end()
    }

    /// Its cgroup is still frozen, but empty.
    @Test func aProcessThatWasMovedAwayRuns() throws {
        let child = try Child.awakeEcho()
        let elsewhere = try ScratchCgroup()
        let first = try stage.suspender(.cgroup)
        try first.attach(3, child)
        try first.freezeFully(3)
        try elsewhere.add(child.pid)
        let second = try stage.suspender(.cgroup)
        #expect(try reattach(second, child) == .running)
        #expect(try child.answers())
        #expect(!exists(try stage.cgroupDirectory() + "/client-3"))
        try second.attach(3, child)
        try second.freezeFully(3)
        #expect(try child.isSilent())
        second.detachAll()
        child.end()
    }
}
